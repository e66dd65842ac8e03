"""Takes a cluster down: CloudFormation deletes the stack, and what AWS still shows afterwards is listed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import InputError
from ...worker.type_aliases import JsonObject
from .connect import AwsClients, explain_errors
from .nodes import EXISTING, TAG
from .stack import GONE, MARK, Pause, Stack, StackEvent, Watch, find_stack, follow_stack, read_events

_ATTEMPTS = 2  # the first fails, for instance, if a network interface is released late
_MAX_IDLE_LOOKS = 20  # at a stack whose deletion does not begin


def exists(aws: AwsClients, name: str) -> bool:
    """Tell whether anything of the cluster exists. Raise InputError for a stack that trainscale did not create."""
    stack = find_stack(aws, name)
    if stack is not None and stack.status != GONE:
        if not stack.is_ours:
            raise InputError(f"the stack {name!r} in {aws.region} was not made by trainscale; it is left alone")
        return True
    return bool(list_leftovers(aws, name))


def take_down(aws: AwsClients, name: str, watch: Watch, pause: Pause = time.sleep) -> list[str]:
    """Delete the cluster's stack, whatever its state. Return what remains, each with its reason if that is known."""
    stack = find_stack(aws, name)
    failures: list[str] = []
    for _ in range(_ATTEMPTS):
        if stack is None or stack.status == GONE:
            break
        stack, failures = _delete_stack(aws, stack, watch, pause)
    return [*failures, *list_leftovers(aws, name)]


def _delete_stack(aws: AwsClients, stack: Stack, watch: Watch, pause: Pause) -> tuple[Stack | None, list[str]]:
    """Try once to delete the stack. Return its new state, and its parts that were not deleted with the reasons."""
    earlier_events = read_events(aws, stack.id)
    with explain_errors():
        aws.cloudformation.delete_stack(StackName=stack.id)
    reasons: dict[str, str] = {}
    has_begun = False
    idle_looks = 0

    def note(event: StackEvent) -> None:
        nonlocal has_begun
        if event.resource == stack.name:
            has_begun = has_begun or event.status == "DELETE_IN_PROGRESS"
            return
        watch(event)
        if event.status == "DELETE_FAILED":
            reasons[event.resource] = event.reason

    def is_over(now: Stack) -> bool:
        nonlocal idle_looks
        idle_looks = 0 if now.is_in_progress else idle_looks + 1
        return now.status == GONE or (now.status == "DELETE_FAILED" and has_begun) or idle_looks > _MAX_IDLE_LOOKS

    after = follow_stack(aws, stack.id, note, is_over, pause, earlier_events)
    if after is None or after.status == GONE:
        return after, []
    failures = [f"{resource}: {reason}" for resource, reason in reasons.items()]
    return after, failures or [f"stack {after.name}: {after.status} {after.reason}".rstrip()]


# ---- what remains


def list_leftovers(aws: AwsClients, name: str) -> list[str]:
    """Return what bears the cluster's tag and costs money, and its network. What is being deleted is not listed."""
    kinds: dict[str, Callable[[AwsClients, str], Iterator[str]]] = {
        "auto-scaling group": _list_auto_scaling_groups,
        "instance": _list_instances,
        "file system": _list_file_systems,
        "NAT gateway": _list_nat_gateways,
        "public address": _list_addresses,
        "disk": _list_disks,
        "network": _list_networks,
    }
    with explain_errors():
        return [f"{kind} {identifier}" for kind, find in kinds.items() for identifier in find(aws, name)]


def _make_tag_filter(key: str, name: str) -> JsonObject:
    return {"Name": f"tag:{key}", "Values": [name]}


def _describe(client: Any, call: str, key: str, *filters: JsonObject) -> Iterator[JsonObject]:
    for page in client.get_paginator(call).paginate(Filters=list(filters)):
        yield from page[key]


def _list_auto_scaling_groups(aws: AwsClients, name: str) -> Iterator[str]:
    for group in _describe(
        aws.autoscaling, "describe_auto_scaling_groups", "AutoScalingGroups", _make_tag_filter(TAG, name)
    ):
        if not group.get("Status"):  # a group has a status only while it is deleted
            yield group["AutoScalingGroupName"]


def _list_instances(aws: AwsClients, name: str) -> Iterator[str]:
    for reservation in _describe(aws.ec2, "describe_instances", "Reservations", _make_tag_filter(TAG, name), EXISTING):
        yield from (instance["InstanceId"] for instance in reservation["Instances"])


def _list_file_systems(aws: AwsClients, name: str) -> Iterator[str]:
    for page in aws.efs.get_paginator("describe_file_systems").paginate():
        for file_system in page["FileSystems"]:
            tags = {tag["Key"]: tag["Value"] for tag in file_system.get("Tags", [])}
            if tags.get(TAG) == name and file_system["LifeCycleState"] not in ("deleting", "deleted"):
                yield file_system["FileSystemId"]


def _list_nat_gateways(aws: AwsClients, name: str) -> Iterator[str]:
    networks = {"Name": "vpc-id", "Values": list(_list_networks(aws, name))}
    if networks["Values"]:  # "Filter": only this call names the argument like this
        for page in aws.ec2.get_paginator("describe_nat_gateways").paginate(Filter=[networks]):
            gateways = (gateway for gateway in page["NatGateways"] if gateway["State"] not in ("deleting", "deleted"))
            yield from (gateway["NatGatewayId"] for gateway in gateways)


def _list_addresses(aws: AwsClients, name: str) -> Iterator[str]:
    for address in aws.ec2.describe_addresses(Filters=[_make_tag_filter(MARK, name)])["Addresses"]:
        yield address["AllocationId"]


def _list_disks(aws: AwsClients, name: str) -> Iterator[str]:
    unattached = {"Name": "status", "Values": ["available"]}
    for disk in _describe(aws.ec2, "describe_volumes", "Volumes", _make_tag_filter(TAG, name), unattached):
        yield disk["VolumeId"]


def _list_networks(aws: AwsClients, name: str) -> Iterator[str]:
    for network in _describe(aws.ec2, "describe_vpcs", "Vpcs", _make_tag_filter(MARK, name)):
        yield network["VpcId"]
