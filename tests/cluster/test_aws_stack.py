"""What CloudFormation may do to a stack, and what is made of it: following, failures, taking down with obstacles.

The stand-in of the other tests knows no states in between and no failures, so CloudFormation is scripted here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from trainscale.cluster.aws import stack as stacks
from trainscale.cluster.aws import teardown
from trainscale.cluster.aws.connect import AwsClients
from trainscale.cluster.aws.stack import CannotStartWorkers, StackEvent
from trainscale.errors import InputError, TrainscaleError

ID = "arn:aws:cloudformation:us-west-2:1:stack/demo/1"


def refusal(operation: str, code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


@dataclass
class CloudFormation:
    """A stack that is in the next of its states whenever somebody looks; each comes with the events that led there."""

    states: list[tuple[str, list[tuple[str, str, str]]]]
    on_delete: list[Callable[[], None]] = field(default_factory=list)
    tags: tuple[str, ...] = (stacks.MARK,)
    deletions: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    _state: str = ""

    exceptions = SimpleNamespace(ClientError=ClientError)

    def describe_stacks(self, StackName: str) -> dict[str, Any]:
        if self.states:
            self._state, happened = self.states.pop(0)
            for resource, status, reason in happened:
                self._events.append(
                    {
                        "EventId": str(len(self._events)),
                        "LogicalResourceId": resource,
                        "ResourceStatus": status,
                        "ResourceStatusReason": reason,
                        "PhysicalResourceId": f"demo-{resource}",
                    }
                )
        if self._state == "":
            raise refusal("DescribeStacks", "ValidationError", f"Stack with id {StackName} does not exist")
        stack = {"StackName": "demo", "StackId": ID, "StackStatus": self._state, "CreationTime": datetime.now(UTC)}
        return {"Stacks": [{**stack, "Tags": [{"Key": tag, "Value": "demo"} for tag in self.tags]}]}

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_stack_events"
        return SimpleNamespace(paginate=lambda StackName: [{"StackEvents": list(reversed(self._events))}])

    def delete_stack(self, StackName: str) -> None:
        assert StackName == ID
        self.deletions += 1
        if self.on_delete:
            self.on_delete.pop(0)()


class Group:
    """An auto-scaling group that could not start instances."""

    def __init__(self, *messages: str) -> None:
        self.messages = messages

    def describe_scaling_activities(self, AutoScalingGroupName: str) -> dict[str, Any]:
        assert AutoScalingGroupName == "demo-Workers"
        failed = [{"StatusCode": "Failed", "StatusMessage": message} for message in self.messages]
        return {"Activities": [{"StatusCode": "Successful", "StatusMessage": "fine"}, *failed]}


def account(cloudformation: CloudFormation, group: Group | None = None) -> AwsClients:
    return AwsClients("us-west-2", cloudformation, None, group or Group(), None, None)


def no_pause(_: float) -> None:
    pass


class Watched(list[StackEvent]):
    def __call__(self, event: StackEvent) -> None:
        self.append(event)


MAKING = [("demo", "CREATE_IN_PROGRESS", "User Initiated"), ("Network", "CREATE_IN_PROGRESS", "")]


# ---- following


def test_every_event_is_told_once_and_in_order_until_the_stack_is_settled() -> None:
    formation = CloudFormation(
        [
            ("CREATE_IN_PROGRESS", MAKING),
            ("CREATE_IN_PROGRESS", []),
            ("CREATE_IN_PROGRESS", [("Network", "CREATE_COMPLETE", "")]),
            ("CREATE_COMPLETE", [("demo", "CREATE_COMPLETE", "")]),
        ]
    )
    watched = Watched()
    made = stacks.follow_stack(account(formation), ID, watched, pause=no_pause)
    assert made is not None
    assert made.status == "CREATE_COMPLETE"
    assert [(event.resource, event.status) for event in watched] == [
        ("demo", "CREATE_IN_PROGRESS"),
        ("Network", "CREATE_IN_PROGRESS"),
        ("Network", "CREATE_COMPLETE"),
        ("demo", "CREATE_COMPLETE"),
    ]


def test_a_roll_back_is_followed_to_its_end_and_the_first_reason_is_the_one_that_counts() -> None:
    formation = CloudFormation(
        [
            ("CREATE_IN_PROGRESS", MAKING),
            (
                "ROLLBACK_IN_PROGRESS",
                [
                    ("Master", "CREATE_FAILED", "Resource creation cancelled"),
                    ("WayOut", "CREATE_FAILED", "NatGatewayLimitExceeded: no more"),
                    ("demo", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [WayOut]"),
                ],
            ),
            ("ROLLBACK_COMPLETE", [("demo", "ROLLBACK_COMPLETE", "")]),
        ]
    )
    aws = account(formation)
    made = stacks.follow_stack(aws, ID, Watched(), pause=no_pause)
    assert made is not None
    assert made.has_failed
    reason = stacks.find_first_failure(stacks.read_events(aws, ID))
    assert reason.startswith("WayOut: NatGatewayLimitExceeded: no more\n")
    assert "your account's quota of NAT gateways" in reason


WORKERS = [*MAKING, ("Workers", "CREATE_IN_PROGRESS", ""), ("Workers", "CREATE_COMPLETE", "")]


def test_a_quota_ends_the_waiting_at_once_with_what_to_do() -> None:
    """CloudFormation would wait for half an hour: for it the group is made, only its instances are not."""
    message = "You have requested more vCPU capacity than your current vCPU limit of 0 allows (VcpuLimitExceeded)"
    watched = Watched()
    with pytest.raises(CannotStartWorkers, match="quota for this family is too small"):
        stacks.follow_stack(
            account(CloudFormation([("CREATE_IN_PROGRESS", WORKERS)]), Group(message)), ID, watched, pause=no_pause
        )
    assert watched[-1] == StackEvent("Workers", "", message)


def test_missing_room_is_told_once_and_waited_for() -> None:
    message = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested"
    formation = CloudFormation(
        [("CREATE_IN_PROGRESS", WORKERS), ("CREATE_IN_PROGRESS", []), ("CREATE_COMPLETE", [])],
    )
    watched = Watched()
    made = stacks.follow_stack(account(formation, Group(message)), ID, watched, pause=no_pause)
    assert made is not None
    assert made.status == "CREATE_COMPLETE"
    assert [event.reason for event in watched if event.status == ""] == [message]


# ---- whose it is


def test_a_stack_of_somebody_else_is_never_touched() -> None:
    formation = CloudFormation([("CREATE_COMPLETE", [])], tags=("team",))
    aws = account(formation)
    for action in (stacks.find_cluster, stacks.check_name_is_free, teardown.exists):
        with pytest.raises(InputError, match="not made by trainscale"):
            action(aws, "demo")
    assert formation.deletions == 0


@pytest.mark.parametrize("state", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"])
def test_a_name_that_a_failed_start_holds_is_told_with_the_way_out(state: str) -> None:
    with pytest.raises(InputError, match=r"the remains of a failed start\)\n.*\n.*cluster down --name demo"):
        stacks.check_name_is_free(account(CloudFormation([(state, [])])), "demo")


# ---- taking down


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What AWS shows after a deletion; empty, unless a test puts something into it."""
    left: list[str] = []
    monkeypatch.setattr(teardown, "list_leftovers", lambda aws, name: list(left))
    return left


DELETING = ("DELETE_IN_PROGRESS", [("demo", "DELETE_IN_PROGRESS", "User Initiated")])


@pytest.mark.parametrize(
    "state",
    ["CREATE_COMPLETE", "CREATE_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED"],
)
def test_a_stack_goes_from_whatever_state_it_is_in(state: str, nothing_left: list[str]) -> None:
    formation = CloudFormation([(state, []), (state, []), DELETING, ("DELETE_COMPLETE", [])])
    assert teardown.take_down(account(formation), "demo", Watched(), no_pause) == []
    assert formation.deletions == 1


def test_what_did_not_go_at_first_is_tried_again(nothing_left: list[str]) -> None:
    held = ("PublicSubnet", "DELETE_FAILED", "has dependencies and cannot be deleted")
    formation = CloudFormation(
        [
            ("CREATE_COMPLETE", MAKING),
            DELETING,
            ("DELETE_FAILED", [held, ("demo", "DELETE_FAILED", "The following failed")]),
            DELETING,
            ("DELETE_COMPLETE", [("PublicSubnet", "DELETE_COMPLETE", "")]),
        ]
    )
    watched = Watched()
    assert teardown.take_down(account(formation), "demo", watched, no_pause) == []
    assert formation.deletions == 2
    states = [event.status for event in watched if event.resource == "PublicSubnet"]
    assert states[-1] == "DELETE_COMPLETE"


def test_what_never_goes_is_returned_by_name_and_reason(nothing_left: list[str]) -> None:
    held = ("PublicSubnet", "DELETE_FAILED", "it is held by eni-1")
    states = [("CREATE_COMPLETE", MAKING), *[DELETING, ("DELETE_FAILED", [held])] * 2]
    formation = CloudFormation(states)
    nothing_left.append("network vpc-1")
    remaining = teardown.take_down(account(formation), "demo", Watched(), no_pause)
    assert remaining == ["PublicSubnet: it is held by eni-1", "network vpc-1"]
    assert formation.deletions == 2


def test_failures_of_an_earlier_deletion_do_not_count(nothing_left: list[str]) -> None:
    """The stack shows its old state for a while after the deletion was requested."""
    held = ("PublicSubnet", "DELETE_FAILED", "it is held by eni-1")
    failed = ("DELETE_FAILED", [DELETING[1][0], held, ("demo", "DELETE_FAILED", "")])
    formation = CloudFormation([failed, ("DELETE_FAILED", []), DELETING, ("DELETE_COMPLETE", [])])
    watched = Watched()
    assert teardown.take_down(account(formation), "demo", watched, no_pause) == []
    assert formation.deletions == 1
    assert watched == []


def test_a_deletion_that_does_not_begin_is_requested_again(nothing_left: list[str]) -> None:
    formation = CloudFormation([("CREATE_COMPLETE", [])] * 25 + [DELETING, ("DELETE_COMPLETE", [])])
    assert teardown.take_down(account(formation), "demo", Watched(), no_pause) == []
    assert formation.deletions == 2
    idle = CloudFormation([("CREATE_COMPLETE", [])] * 100)
    assert teardown.take_down(account(idle), "demo", Watched(), no_pause) == ["stack demo: CREATE_COMPLETE"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDenied", "AWS does not allow this: User is not authorized"),
        ("ValidationError", "AWS refused DeleteStack: ValidationError: User is not authorized"),
    ],
)
def test_a_deletion_that_aws_refuses_is_an_error_at_once(code: str, message: str, nothing_left: list[str]) -> None:
    def refuse() -> None:
        raise refusal("DeleteStack", code, "User is not authorized to perform: cloudformation:DeleteStack")

    formation = CloudFormation([("CREATE_COMPLETE", [])], [refuse])
    with pytest.raises(TrainscaleError, match=message):
        teardown.take_down(account(formation), "demo", Watched(), no_pause)


def test_what_is_left_of_a_stack_that_is_gone_is_returned(nothing_left: list[str]) -> None:
    nothing_left += ["NAT gateway nat-1", "network vpc-1"]
    assert teardown.exists(account(CloudFormation([])), "demo")
    assert teardown.take_down(account(CloudFormation([])), "demo", Watched(), no_pause) == nothing_left
