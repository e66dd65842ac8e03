"""The stack's life in CloudFormation: create it, look at it, follow what happens to it. Taking it down: teardown.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...errors import InputError, TrainscaleError
from .connect import Aws, code_of, explained, is_final, told
from .request import ClusterRequest
from .template import template

# Put on the stack itself, and by AWS on all that it makes: how a cluster of ours is told from other stacks.
MARK = "trainscale-stack"

GONE = "DELETE_COMPLETE"
READY = "CREATE_COMPLETE"
_INTERVAL = 3.0  # seconds between two looks
_WORKERS = "Workers"  # the group's name in stack.yaml


@dataclass(frozen=True)
class Stack:
    name: str
    id: str
    status: str
    reason: str
    created: datetime
    parameters: dict[str, str]
    outputs: dict[str, str]
    ours: bool

    @property
    def moving(self) -> bool:
        return self.status.endswith("_IN_PROGRESS")

    @property
    def failed(self) -> bool:
        return not self.moving and self.status != READY


@dataclass(frozen=True)
class StackEvent:
    """Something happened to a part of the stack, or (no status) a worker could not be started."""

    resource: str
    status: str
    reason: str


class CannotStart(TrainscaleError):
    """AWS will not give these workers, however long one waits."""


Watch = Callable[[StackEvent], None]
Pause = Callable[[float], None]


def find(aws: Aws, name: str) -> Stack | None:
    """By name, or by id, which also finds a stack that was deleted."""
    with told():
        try:
            (found,) = aws.cloudformation.describe_stacks(StackName=name)["Stacks"]
        except aws.cloudformation.exceptions.ClientError as error:
            if code_of(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
    tags = {tag["Key"] for tag in found.get("Tags", [])}
    return Stack(
        found["StackName"],
        found["StackId"],
        found["StackStatus"],
        found.get("StackStatusReason", ""),
        found["CreationTime"],
        {one["ParameterKey"]: one["ParameterValue"] for one in found.get("Parameters", [])},
        {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])},
        MARK in tags,
    )


def find_ours(aws: Aws, name: str) -> Stack:
    """The cluster of that name, or an error; a stack of somebody else's is never touched."""
    stack = find(aws, name)
    if stack is None or stack.status == GONE:
        raise InputError(f"there is no cluster {name!r} in {aws.region}\n  --name and --region say which one is meant")
    if not stack.ours:
        raise InputError(f"the stack {name!r} in {aws.region} was not made by trainscale; it is left alone")
    return stack


def check_free(aws: Aws, name: str) -> None:
    stack = find(aws, name)
    if stack is None or stack.status == GONE:
        return
    if not stack.ours:
        raise InputError(
            f"--name: {aws.region} has a stack {name!r} already, not made by trainscale; take another name"
        )
    said = "what a failed start left" if stack.failed else "as it was asked for before"
    raise InputError(
        f"--name: there is a cluster {name!r} in {aws.region} already ({stack.status}, {said})\n"
        f"  look: trainscale cluster status --name {name} --region {aws.region}\n"
        f"  take it down: trainscale cluster down --name {name} --region {aws.region}"
    )


def create(aws: Aws, wish: ClusterRequest) -> str:
    """Begins to create the stack; its id. On a failure CloudFormation undoes all by itself."""
    with told():
        made = aws.cloudformation.create_stack(
            StackName=wish.name,
            TemplateBody=template(wish.worker),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in wish.parameters().items()],
            Tags=[{"Key": MARK, "Value": wish.name}],
            Capabilities=["CAPABILITY_IAM"],
            OnFailure="ROLLBACK",
        )
    return str(made["StackId"])


# ---- following


def settled(stack: Stack) -> bool:
    return not stack.moving


def follow(
    aws: Aws, stack_id: str, watch: Watch, until: Callable[[Stack], bool] = settled, pause: Pause = time.sleep
) -> Stack | None:
    """Tells everything that happens to the stack until it is as ``until`` says. None: it is gone without a trace."""
    seen: set[str] = set()
    troubles: set[str] = set()
    while True:
        stack = find(aws, stack_id)  # before the events: those of the last state are then among them
        for key, event, physical in _events(aws, stack_id):
            if key not in seen:
                seen.add(key)
                watch(event)
            if event.resource == _WORKERS and physical and stack is not None and stack.status == "CREATE_IN_PROGRESS":
                troubles |= _tell_troubles(aws, physical, troubles, watch)
        if stack is None or until(stack):
            return stack
        pause(_INTERVAL)


def _events(aws: Aws, stack_id: str) -> Iterator[tuple[str, StackEvent, str]]:
    """All so far, the oldest first, each with its key and the physical name of what it is about."""
    found: list[dict[str, Any]] = []
    with told():
        try:
            for page in aws.cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id):
                found += page["StackEvents"]
        except aws.cloudformation.exceptions.ClientError as error:
            if code_of(error) != "ValidationError":
                raise
    for one in reversed(found):
        reason = one.get("ResourceStatusReason", "")
        event = StackEvent(one.get("LogicalResourceId", ""), one.get("ResourceStatus", ""), reason)
        yield one["EventId"], event, one.get("PhysicalResourceId", "")


def events(aws: Aws, stack_id: str) -> list[StackEvent]:
    """All that has happened to the stack, the oldest first."""
    return [event for _, event, _ in _events(aws, stack_id)]


def _tell_troubles(aws: Aws, group: str, known: set[str], watch: Watch) -> set[str]:
    """A group tries again and again to start its instances; CloudFormation says nothing of it, the group does."""
    new = {message for message in troubles_of(aws, group) if message not in known}
    for message in sorted(new):
        watch(StackEvent(_WORKERS, "", message))
        if is_final(message):
            raise CannotStart(explained(message))
    return new


def troubles_of(aws: Aws, group: str) -> list[str]:
    """Why instances of the group were not started, the newest first."""
    with told():
        found = aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    return [one["StatusMessage"] for one in found if one["StatusCode"] == "Failed" and one.get("StatusMessage")]


def first_failure(events: list[StackEvent]) -> str:
    """The reason that stands at the beginning; what was cancelled because of it is left out."""
    for event in events:
        if event.status.endswith("_FAILED") and event.reason and "cancelled" not in event.reason:
            return f"{event.resource}: {explained(event.reason)}"
    return ""
