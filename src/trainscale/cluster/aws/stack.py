"""The stack of a cluster in CloudFormation: creates it, finds it and follows its events. teardown.py deletes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from ...errors import InputError, TrainscaleError
from ...worker.type_aliases import JsonObject
from .connect import AwsClients, add_hint, explain_errors, is_permanent, read_code
from .request import ClusterRequest
from .template import render_template

# The tag of the stack, which AWS also puts on all that the stack creates. It marks our clusters.
MARK = "trainscale-stack"

GONE = "DELETE_COMPLETE"
READY = "CREATE_COMPLETE"
_INTERVAL = 3.0  # seconds between two requests
_WORKERS = "Workers"  # the name of the auto-scaling group in stack.yaml


@dataclass(frozen=True)
class Stack:
    name: str
    id: str
    status: str
    reason: str
    created: datetime
    parameters: dict[str, str]
    outputs: dict[str, str]
    is_ours: bool

    @property
    def is_in_progress(self) -> bool:
        return self.status.endswith("_IN_PROGRESS")

    @property
    def has_failed(self) -> bool:
        return not self.is_in_progress and self.status != READY


@dataclass(frozen=True)
class StackEvent:
    """Something happened to a resource of the stack, or (with an empty status) a worker could not be started."""

    resource: str
    status: str
    reason: str
    physical_id: str = ""
    id: str = field(default="", compare=False)


class CannotStartWorkers(TrainscaleError):
    """AWS refuses to start the workers for a reason that waiting does not change."""


Watch = Callable[[StackEvent], None]
Pause = Callable[[float], None]


def find_stack(aws: AwsClients, name: str) -> Stack | None:
    """Return the stack with this name or id. A deleted stack is found only by its id."""
    with explain_errors():
        try:
            (stack,) = aws.cloudformation.describe_stacks(StackName=name)["Stacks"]
        except aws.cloudformation.exceptions.ClientError as error:
            if read_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
    return Stack(
        stack["StackName"],
        stack["StackId"],
        stack["StackStatus"],
        stack.get("StackStatusReason", ""),
        stack["CreationTime"],
        {parameter["ParameterKey"]: parameter["ParameterValue"] for parameter in stack.get("Parameters", [])},
        {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])},
        any(tag["Key"] == MARK for tag in stack.get("Tags", [])),
    )


def find_cluster(aws: AwsClients, name: str) -> Stack:
    """Return the stack of the cluster with this name. Raise InputError for a stack that trainscale did not create."""
    stack = find_stack(aws, name)
    if stack is None or stack.status == GONE:
        raise InputError(f"there is no cluster {name!r} in {aws.region}\n  --name and --region select the cluster")
    if not stack.is_ours:
        raise InputError(f"the stack {name!r} in {aws.region} was not made by trainscale; it is left alone")
    return stack


def check_name_is_free(aws: AwsClients, name: str) -> None:
    stack = find_stack(aws, name)
    if stack is None or stack.status == GONE:
        return
    if not stack.is_ours:
        raise InputError(f"--name: {aws.region} already has a stack {name!r}, not made by trainscale; use another name")
    remark = ", the remains of a failed start" if stack.has_failed else ""
    raise InputError(
        f"--name: there is already a cluster {name!r} in {aws.region} ({stack.status}{remark})\n"
        f"  show it: trainscale cluster status --name {name} --region {aws.region}\n"
        f"  take it down: trainscale cluster down --name {name} --region {aws.region}"
    )


def create_stack(aws: AwsClients, request: ClusterRequest) -> str:
    """Begin to create the stack and return its id. If that fails, CloudFormation deletes what it has created."""
    with explain_errors():
        response = aws.cloudformation.create_stack(
            StackName=request.name,
            TemplateBody=render_template(request.worker),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in request.make_parameters().items()],
            Tags=[{"Key": MARK, "Value": request.name}],
            Capabilities=["CAPABILITY_IAM"],
            OnFailure="ROLLBACK",
        )
    return str(response["StackId"])


# ---- following


def is_settled(stack: Stack) -> bool:
    return not stack.is_in_progress


def follow_stack(
    aws: AwsClients,
    stack_id: str,
    watch: Watch,
    until: Callable[[Stack], bool] = is_settled,
    pause: Pause = time.sleep,
    earlier_events: Iterable[StackEvent] = (),
) -> Stack | None:
    """Report each event of the stack after the earlier ones, until ``until`` is true. Return None if it is gone."""
    reported = {event.id for event in earlier_events}
    known_failures: set[str] = set()
    while True:
        stack = find_stack(aws, stack_id)  # before the events, so that those of the last state are among them
        events = read_events(aws, stack_id)
        for event in events:
            if event.id not in reported:
                reported.add(event.id)
                watch(event)
        group = next((event.physical_id for event in events if event.resource == _WORKERS and event.physical_id), None)
        if group and stack is not None and stack.status == "CREATE_IN_PROGRESS":
            known_failures |= _report_launch_failures(aws, group, known_failures, watch)
        if stack is None or until(stack):
            return stack
        pause(_INTERVAL)


def read_events(aws: AwsClients, stack_id: str) -> list[StackEvent]:
    """Return all events of the stack, the oldest first."""
    events: list[JsonObject] = []
    with explain_errors():
        try:
            for page in aws.cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id):
                events += page["StackEvents"]
        except aws.cloudformation.exceptions.ClientError as error:
            if read_code(error) != "ValidationError":
                raise
    keys = ("LogicalResourceId", "ResourceStatus", "ResourceStatusReason", "PhysicalResourceId", "EventId")
    return [StackEvent(*(event.get(key, "") for key in keys)) for event in reversed(events)]


def _report_launch_failures(aws: AwsClients, group: str, known: set[str], watch: Watch) -> set[str]:
    """Report why workers were not started. CloudFormation only waits; the auto-scaling group knows the reason."""
    new = {message for message in read_launch_failures(aws, group) if message not in known}
    for message in sorted(new):
        watch(StackEvent(_WORKERS, "", message))
        if is_permanent(message):
            raise CannotStartWorkers(add_hint(message))
    return new


def read_launch_failures(aws: AwsClients, group: str) -> list[str]:
    """Return why instances of the auto-scaling group were not started, the newest first."""
    with explain_errors():
        activities = aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    failed = [activity for activity in activities if activity["StatusCode"] == "Failed"]
    return [activity["StatusMessage"] for activity in failed if activity.get("StatusMessage")]


def explain_creation_failure(aws: AwsClients, stack_id: str, stack: Stack | None) -> str:
    """Return the state of a stack that was not created, and the reason."""
    reason = find_first_failure(read_events(aws, stack_id)) or (stack.reason if stack else "") or "no reason given"
    return f"({stack.status if stack else 'gone'}): {reason}"


def find_first_failure(events: list[StackEvent]) -> str:
    """Return the first reason of a failure, without resources that were cancelled because of it."""
    for event in events:
        if event.status.endswith("_FAILED") and event.reason and "cancelled" not in event.reason:
            return f"{event.resource}: {add_hint(event.reason)}"
    return ""
