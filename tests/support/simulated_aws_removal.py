"""Removes all that bears a cluster's tag or lies in its network from moto, as CloudFormation does in AWS."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

import boto3

from trainscale.cluster.aws import MARK, TAG


@functools.cache
def client(endpoint: str, region: str, service: str) -> Any:
    return boto3.client(
        service,
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )


def remove_all(endpoint: str, region: str, name: str) -> None:
    ec2, efs, scaling = (client(endpoint, region, service) for service in ("ec2", "efs", "autoscaling"))
    tag, mark = ({"Name": f"tag:{key}", "Values": [name]} for key in (TAG, MARK))
    for group in scaling.describe_auto_scaling_groups(Filters=[tag])["AutoScalingGroups"]:
        scaling.delete_auto_scaling_group(AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True)
    for reservation in ec2.describe_instances(Filters=[tag])["Reservations"]:
        ec2.terminate_instances(InstanceIds=[instance["InstanceId"] for instance in reservation["Instances"]])
    for system in efs.describe_file_systems()["FileSystems"]:
        if {"Key": TAG, "Value": name} in system["Tags"]:
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
                efs.delete_mount_target(MountTargetId=target["MountTargetId"])
            efs.delete_file_system(FileSystemId=system["FileSystemId"])
    for network in ec2.describe_vpcs(Filters=[mark])["Vpcs"]:
        remove_network(ec2, network["VpcId"], mark)
    for template in ec2.describe_launch_templates(Filters=[mark])["LaunchTemplates"]:
        ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    remove_roles(client(endpoint, region, "iam"), name)


def remove_network(ec2: Any, network: str, mark: dict[str, Any]) -> None:
    inside = [{"Name": "vpc-id", "Values": [network]}]
    interfaces = [
        item["NetworkInterfaceId"] for item in ec2.describe_network_interfaces(Filters=inside)["NetworkInterfaces"]
    ]
    for gateway in ec2.describe_nat_gateways(Filter=inside)["NatGateways"]:
        ec2.delete_nat_gateway(NatGatewayId=gateway["NatGatewayId"])
    for address in ec2.describe_addresses()["Addresses"]:
        if address.get("NetworkInterfaceId") in interfaces:  # moto gives addresses no tag
            ec2.release_address(AllocationId=address["AllocationId"])
    for interface in interfaces:
        with suppress(Exception):  # attached ones went with their instances
            ec2.delete_network_interface(NetworkInterfaceId=interface)
    for gateway in ec2.describe_internet_gateways(Filters=[mark])["InternetGateways"]:
        for _ in gateway["Attachments"]:
            ec2.detach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=network)
        ec2.delete_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"])
    for subnet in ec2.describe_subnets(Filters=inside)["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    for table in ec2.describe_route_tables(Filters=inside)["RouteTables"]:
        if not any(link.get("Main") for link in table["Associations"]):
            for link in table["Associations"]:
                ec2.disassociate_route_table(AssociationId=link["RouteTableAssociationId"])
            ec2.delete_route_table(RouteTableId=table["RouteTableId"])
    groups = ec2.describe_security_groups(Filters=inside)["SecurityGroups"]
    for group in groups:  # the rules first: a group that another one names cannot be deleted
        for kind, call in (("IpPermissions", "ingress"), ("IpPermissionsEgress", "egress")):
            if group[kind]:
                revoke = getattr(ec2, f"revoke_security_group_{call}")
                revoke(GroupId=group["GroupId"], IpPermissions=group[kind])
    for group in groups:
        if group["GroupName"] != "default":
            ec2.delete_security_group(GroupId=group["GroupId"])
    ec2.delete_vpc(VpcId=network)


def remove_roles(iam: Any, name: str) -> None:
    for role in iam.list_roles()["Roles"]:
        if role["RoleName"].startswith(f"{name}-"):
            for profile in iam.list_instance_profiles_for_role(RoleName=role["RoleName"])["InstanceProfiles"]:
                iam.remove_role_from_instance_profile(
                    InstanceProfileName=profile["InstanceProfileName"], RoleName=role["RoleName"]
                )
                iam.delete_instance_profile(InstanceProfileName=profile["InstanceProfileName"])
            for policy in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
                iam.delete_role_policy(RoleName=role["RoleName"], PolicyName=policy)
            iam.delete_role(RoleName=role["RoleName"])
