"""What is left of a cluster, found by its tag and its network, and how each kind of it is removed by hand.

Kinds stand in the order in which they have to go. A thing that is already on its way out is not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .connect import Aws, message_of, told
from .nodes import TAG
from .stack import MARK


@dataclass(frozen=True)
class Leftover:
    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def find(aws: Aws, name: str) -> list[Leftover]:
    """All that bears the cluster's tag, or lies in the network that does."""
    with told():
        networks = [one["VpcId"] for one in _ec2(aws, "describe_vpcs", "Vpcs", _tag(MARK, name))]
        return [Leftover(kind.name, one) for kind in _KINDS for one in kind.find(aws, name, networks)]


def remove(aws: Aws, leftover: Leftover) -> str:
    """Asks for its end. Returns why AWS refused, if it did: something else may have to go first."""
    (kind,) = (kind for kind in _KINDS if kind.name == leftover.kind)
    with told():
        try:
            kind.remove(aws, leftover.id)
        except aws.ec2.exceptions.ClientError as error:
            return message_of(error)
    return ""


# ---- finding


def _tag(key: str, name: str) -> dict[str, Any]:
    return {"Name": f"tag:{key}", "Values": [name]}


def _ec2(aws: Aws, call: str, key: str, *filters: dict[str, Any]) -> list[dict[str, Any]]:
    pages = aws.ec2.get_paginator(call).paginate(Filters=list(filters))
    return [one for page in pages for one in page[key]]


def _in_networks(aws: Aws, networks: list[str], call: str, key: str, *filters: dict[str, Any]) -> list[dict[str, Any]]:
    return _ec2(aws, call, key, {"Name": "vpc-id", "Values": networks}, *filters) if networks else []


def _groups(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    pages = aws.autoscaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=[_tag(TAG, name)])
    for one in (one for page in pages for one in page["AutoScalingGroups"]):
        if not one.get("Status"):  # it has one only while it is deleted
            yield one["AutoScalingGroupName"]


def _instances(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    there = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
    for reservation in _ec2(aws, "describe_instances", "Reservations", _tag(TAG, name), there):
        yield from (one["InstanceId"] for one in reservation["Instances"])


def _file_systems(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    for page in aws.efs.get_paginator("describe_file_systems").paginate():
        for one in page["FileSystems"]:
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
            if tags.get(TAG) == name and one["LifeCycleState"] not in ("deleting", "deleted"):
                yield one["FileSystemId"]


def _mount_targets(aws: Aws, name: str, networks: list[str]) -> Iterator[str]:
    for file_system in _file_systems(aws, name, networks):
        for one in aws.efs.describe_mount_targets(FileSystemId=file_system)["MountTargets"]:
            if one["LifeCycleState"] not in ("deleting", "deleted"):
                yield one["MountTargetId"]


def _nat_gateways(aws: Aws, _: str, networks: list[str]) -> Iterator[str]:
    if networks:  # this call alone names its filters otherwise
        filters = [{"Name": "vpc-id", "Values": networks}]
        for page in aws.ec2.get_paginator("describe_nat_gateways").paginate(Filter=filters):
            yield from (n["NatGatewayId"] for n in page["NatGateways"] if n["State"] not in ("deleting", "deleted"))


def _addresses(aws: Aws, name: str, networks: list[str]) -> Iterator[str]:
    held = _in_networks(aws, networks, "describe_network_interfaces", "NetworkInterfaces")
    interfaces = {one["NetworkInterfaceId"] for one in held}
    for one in aws.ec2.describe_addresses()["Addresses"]:
        tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
        if tags.get(MARK) == name or one.get("NetworkInterfaceId") in interfaces:
            yield one["AllocationId"]


def _disks(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    free = {"Name": "status", "Values": ["available"]}
    yield from (one["VolumeId"] for one in _ec2(aws, "describe_volumes", "Volumes", _tag(TAG, name), free))


def _interfaces(aws: Aws, _: str, networks: list[str]) -> Iterator[str]:
    free = {"Name": "status", "Values": ["available"]}
    found = _in_networks(aws, networks, "describe_network_interfaces", "NetworkInterfaces", free)
    yield from (one["NetworkInterfaceId"] for one in found)


def _gateways(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    for one in _ec2(aws, "describe_internet_gateways", "InternetGateways", _tag(MARK, name)):
        yield one["InternetGatewayId"]


def _subnets(aws: Aws, _: str, networks: list[str]) -> Iterator[str]:
    yield from (one["SubnetId"] for one in _in_networks(aws, networks, "describe_subnets", "Subnets"))


def _route_tables(aws: Aws, _: str, networks: list[str]) -> Iterator[str]:
    for one in _in_networks(aws, networks, "describe_route_tables", "RouteTables"):
        if not any(link.get("Main") for link in one["Associations"]):  # that one goes with its network
            yield one["RouteTableId"]


def _security_groups(aws: Aws, _: str, networks: list[str]) -> Iterator[str]:
    for one in _in_networks(aws, networks, "describe_security_groups", "SecurityGroups"):
        if one["GroupName"] != "default":
            yield one["GroupId"]


def _templates(aws: Aws, name: str, _: list[str]) -> Iterator[str]:
    for one in _ec2(aws, "describe_launch_templates", "LaunchTemplates", _tag(MARK, name)):
        yield one["LaunchTemplateId"]


# ---- removing, where it takes more than one call


def _remove_gateway(aws: Aws, gateway: str) -> None:
    (found,) = aws.ec2.describe_internet_gateways(InternetGatewayIds=[gateway])["InternetGateways"]
    for one in found["Attachments"]:
        aws.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=one["VpcId"])
    aws.ec2.delete_internet_gateway(InternetGatewayId=gateway)


def _remove_route_table(aws: Aws, table: str) -> None:
    (found,) = aws.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]
    for one in found["Associations"]:
        aws.ec2.disassociate_route_table(AssociationId=one["RouteTableAssociationId"])
    aws.ec2.delete_route_table(RouteTableId=table)


def _remove_security_group(aws: Aws, group: str) -> None:
    """Its rules first: a group that another one names cannot go."""
    (found,) = aws.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    if found["IpPermissions"]:
        aws.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=found["IpPermissions"])
    if found["IpPermissionsEgress"]:
        aws.ec2.revoke_security_group_egress(GroupId=group, IpPermissions=found["IpPermissionsEgress"])
    aws.ec2.delete_security_group(GroupId=group)


@dataclass(frozen=True)
class _Kind:
    name: str
    find: Callable[[Aws, str, list[str]], Iterator[str]]
    remove: Callable[[Aws, str], Any]


def _networks(_: Aws, __: str, networks: list[str]) -> Iterator[str]:
    yield from networks


_KINDS = (
    _Kind(
        "auto-scaling group",
        _groups,
        lambda aws, one: aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=one, ForceDelete=True),
    ),
    _Kind("instance", _instances, lambda aws, one: aws.ec2.terminate_instances(InstanceIds=[one])),
    _Kind("mount target", _mount_targets, lambda aws, one: aws.efs.delete_mount_target(MountTargetId=one)),
    _Kind("file system", _file_systems, lambda aws, one: aws.efs.delete_file_system(FileSystemId=one)),
    _Kind("NAT gateway", _nat_gateways, lambda aws, one: aws.ec2.delete_nat_gateway(NatGatewayId=one)),
    _Kind("public address", _addresses, lambda aws, one: aws.ec2.release_address(AllocationId=one)),
    _Kind("disk", _disks, lambda aws, one: aws.ec2.delete_volume(VolumeId=one)),
    _Kind(
        "network interface",
        _interfaces,
        lambda aws, one: aws.ec2.delete_network_interface(NetworkInterfaceId=one),
    ),
    _Kind("internet gateway", _gateways, _remove_gateway),
    _Kind("subnet", _subnets, lambda aws, one: aws.ec2.delete_subnet(SubnetId=one)),
    _Kind("route table", _route_tables, _remove_route_table),
    _Kind("security group", _security_groups, _remove_security_group),
    _Kind("network", _networks, lambda aws, one: aws.ec2.delete_vpc(VpcId=one)),
    _Kind("launch template", _templates, lambda aws, one: aws.ec2.delete_launch_template(LaunchTemplateId=one)),
)
