"""The simulated AWS account of a test: the environment that commands need to use it, and clients to inspect it."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.loaders import JSONFileLoader, Loader

from trainscale.cluster import aws
from trainscale.cluster.aws import MARK, TAG

_load_file = JSONFileLoader.load_file
_list_services = Loader.list_available_services


@functools.cache
def _load_once(path: str) -> object:
    return _load_file(JSONFileLoader(), path)


@functools.cache
def _list_services_once(search_paths: tuple[str, ...], type_name: str) -> list[str]:
    return list(_list_services(Loader(list(search_paths)), type_name))


def share_service_models() -> None:
    """Let all sessions of this process, and of processes that are forked from it, read each description once."""
    JSONFileLoader.load_file = lambda self, path: _load_once(path)
    Loader.list_available_services = lambda self, type_name: _list_services_once(tuple(self.search_paths), type_name)
    aws.connect(REGION)


REGION = "us-west-2"
IMAGE = "ami-1e749f67"  # an Ubuntu image that moto has
PROGRAM = Path(__file__).with_name("simulated_aws_program.py")


class Server:
    def __init__(self, port: int, orders: Path) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }
        self._orders = orders

    def client(self, service: str) -> Any:
        return connect(self.environment["AWS_ENDPOINT_URL"], service)

    @contextmanager
    def refusing_groups(self, reason: str) -> Iterator[None]:
        order = self._orders / "refuse-groups"
        order.write_text(reason)
        try:
            yield
        finally:
            order.unlink()

    def resources(self) -> dict[str, list[str]]:
        """Return the ids of everything in the account but AWS's own things, by kind, without empty kinds."""

        def ids(service: str, call: str, key: str, name: str, **options: Any) -> list[str]:
            items = getattr(self.client(service), call)(**options)[key]
            gone = [item for item in items if item.get("IsDefault") or item.get("State") == "deleted"]
            return [item[name] for item in items if item not in gone]

        networks = ids("ec2", "describe_vpcs", "Vpcs", "VpcId")
        inside = {"Filters": [{"Name": "vpc-id", "Values": networks or ["none"]}]}
        groups = self.client("ec2").describe_instances()["Reservations"]
        instances = [item for group in groups for item in group["Instances"]]
        ids_by_kind = {
            "stacks": ids("cloudformation", "describe_stacks", "Stacks", "StackName"),
            "networks": networks,
            "subnets": ids("ec2", "describe_subnets", "Subnets", "SubnetId", **inside),
            "groups": ids("ec2", "describe_security_groups", "SecurityGroups", "GroupId", **inside),
            "tables": ids("ec2", "describe_route_tables", "RouteTables", "RouteTableId", **inside),
            "gateways": ids("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
            "nat": ids("ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId"),
            "addresses": ids("ec2", "describe_addresses", "Addresses", "PublicIp"),
            "instances": [item["InstanceId"] for item in instances if item["State"]["Name"] != "terminated"],
            "templates": ids("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
            "files": ids("efs", "describe_file_systems", "FileSystems", "FileSystemId"),
            "roles": ids("iam", "list_roles", "Roles", "RoleName"),
            "workers": ids("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"),
        }
        return {kind: ids for kind, ids in ids_by_kind.items() if ids}


@contextmanager
def simulate_aws(folder: Path) -> Iterator[Server]:
    """Start a fresh account with a key pair named ``key``."""
    orders = folder / "orders"
    orders.mkdir()
    share_service_models()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = process.stdout.readline()
            assert port.strip(), (folder / "log").read_text()
            server = Server(int(port), orders)
            server.client("ec2").create_key_pair(KeyName="key")
            yield server
        finally:
            process.kill()
            process.communicate()


@functools.cache
def connect(endpoint: str, service: str) -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint, **keys)


def remove_all(endpoint: str, name: str) -> None:
    """Remove all that bears a cluster's tag or lies in its network from moto, as CloudFormation does in AWS."""
    ec2, efs, scaling = (connect(endpoint, service) for service in ("ec2", "efs", "autoscaling"))
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
    remove_roles(connect(endpoint, "iam"), name)


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
