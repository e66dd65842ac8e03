"""A cluster on AWS: what is checked before it is requested, AWS's errors in words, and stacks in every state.

The simulated AWS of the command's tests knows no states in between and no failures; here the answers are scripted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.stub import Stubber

from trainscale.cluster import aws as stacks
from trainscale.cluster.aws import AwsClients, CannotStartWorkers, add_hint, explain_errors, find_region
from trainscale.cluster.aws_template import parse_ssh_range
from trainscale.errors import InputError, TrainscaleError

ID = "arn:aws:cloudformation:us-west-2:1:stack/demo/1"
QUOTA = "You have requested more vCPU capacity than your current vCPU limit of 0 allows (VcpuLimitExceeded)"
NO_ROOM = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested"


@pytest.mark.parametrize(
    ("given", "taken"),
    [("203.0.113.7", "203.0.113.7/32"), ("198.51.100.0/24", "198.51.100.0/24"), ("10.0.0.0/8", "10.0.0.0/8")],
)
def test_a_range_or_an_address_may_log_in(given: str, taken: str) -> None:
    assert parse_ssh_range(given) == taken


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("128.0.0.0/1", "--ssh-from: 128.0.0.0/1 admits nearly the whole Internet"),
        ("198.51.100.7/24", "--ssh-from: 198.51.100.7/24 has host bits set"),
        ("home", "--ssh-from: 'home' does not appear to be"),
        ("2001:db8::/32", "is IPv6; the master has an IPv4 address"),
        ("", "--ssh-from:"),
    ],
)
def test_other_ranges_are_refused_with_the_way_to_find_ones_own(given: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_ssh_range(given)
    assert message in str(caught.value)
    assert "checkip.amazonaws.com" in str(caught.value)


def test_the_region_comes_from_the_flag_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(InputError, match="--region: in which region"):
        find_region(None)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert find_region(None) == "eu-west-2"
    assert find_region("us-gov-east-1") == "us-gov-east-1"
    monkeypatch.setenv("AWS_REGION", "oregon")
    with pytest.raises(InputError, match="AWS_REGION: 'oregon' is not a region"):
        find_region(None)
    with pytest.raises(InputError, match="--region: 'us-east' is not a region"):
        find_region("us-east")


# ---- AWS's errors in words


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("ExpiredToken", InputError, "AWS does not accept these credentials"),
        ("InvalidClientTokenId", InputError, "AWS does not accept these credentials"),
        ("AccessDenied", TrainscaleError, "AWS does not allow this"),
        ("UnauthorizedOperation", TrainscaleError, "AWS does not allow this"),
        ("VpcLimitExceeded", TrainscaleError, "a quota of your account is used up"),
        ("Throttling", TrainscaleError, "AWS refused CreateStack: Throttling: the message"),
    ],
)
def test_a_refusal_is_one_message_with_what_to_do(code: str, kind: type[TrainscaleError], message: str) -> None:
    with pytest.raises(TrainscaleError) as caught, explain_errors():
        raise ClientError({"Error": {"Code": code, "Message": "the message"}}, "CreateStack")
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert "the message" in str(caught.value)


def test_missing_credentials_are_told_with_how_to_give_them() -> None:
    with pytest.raises(InputError, match=r"no credentials found.*\n.*aws configure"), explain_errors():
        raise NoCredentialsError


# ---- stacks


class Script:
    """Answers in the order in which they are requested. An answer that is not requested fails the test."""

    def __init__(self) -> None:
        arguments: dict[str, Any] = {"region_name": "us-west-2", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
        formation, scaling = boto3.client("cloudformation", **arguments), boto3.client("autoscaling", **arguments)
        self.formation, self.scaling = Stubber(formation), Stubber(scaling)
        self.aws = AwsClients("us-west-2", formation, None, scaling, None)

    def state(self, status: str, tag: str = stacks.MARK) -> Script:
        stack = {"StackName": "demo", "StackId": ID, "StackStatus": status, "CreationTime": datetime.now(UTC)}
        stacks_ = [{**stack, "Tags": [{"Key": tag, "Value": "demo"}]}]
        self.formation.add_response("describe_stacks", {"Stacks": stacks_})
        return self

    def resource(self, name: str, status: str, reason: str = "") -> Script:
        item = {"LogicalResourceId": name, "PhysicalResourceId": f"demo-{name}", "ResourceType": "x"}
        item |= {"ResourceStatus": status, "ResourceStatusReason": reason}
        resources = [{**item, "Timestamp": datetime.now(UTC)}]
        self.formation.add_response("describe_stack_resources", {"StackResources": resources})
        return self

    def not_started(self, *messages: str) -> Script:
        self.resource("Workers", "CREATE_COMPLETE")
        activity = {"ActivityId": "1", "AutoScalingGroupName": "g", "Cause": "x", "StartTime": datetime.now(UTC)}
        done = [{**activity, "StatusCode": "Successful"}]
        failed = [{**activity, "StatusCode": "Failed", "StatusMessage": message} for message in messages]
        expected = {"AutoScalingGroupName": "demo-Workers"}
        self.scaling.add_response("describe_scaling_activities", {"Activities": [*done, *failed]}, expected)
        return self

    def deletion(self) -> Script:
        self.formation.add_response("delete_stack", {}, {"StackName": ID})
        return self


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    monkeypatch.setattr(stacks, "_INTERVAL", 0.001)
    script = Script()
    with script.formation, script.scaling:
        yield script
    script.formation.assert_no_pending_responses()
    script.scaling.assert_no_pending_responses()


def test_creation_is_followed_and_missing_room_is_told_once_and_waited_for(script: Script) -> None:
    script.state("CREATE_IN_PROGRESS").not_started(NO_ROOM)
    script.state("CREATE_IN_PROGRESS").not_started(NO_ROOM, NO_ROOM).state("CREATE_IN_PROGRESS")
    script.not_started("Your instance is being started").state("CREATE_COMPLETE")
    told: list[str] = []
    stack = stacks.wait_until_settled(script.aws, ID, told.append)
    assert stack is not None
    assert stack.status == "CREATE_COMPLETE"
    assert told[0].startswith(f"Workers not started yet: {NO_ROOM}\n  AWS has no capacity")
    assert told[1:] == ["Workers not started yet: Your instance is being started"]


def test_a_quota_ends_the_waiting_at_once_with_what_to_do(script: Script) -> None:
    """CloudFormation would wait for half an hour: for it the group is made, only its instances are not."""
    script.state("CREATE_IN_PROGRESS").not_started(QUOTA)
    with pytest.raises(CannotStartWorkers, match="quota for this family is too small"):
        stacks.wait_until_settled(script.aws, ID, print)


def test_a_roll_back_is_followed_to_its_end_and_the_first_reason_counts(script: Script) -> None:
    script.state("ROLLBACK_IN_PROGRESS").state("ROLLBACK_COMPLETE")
    stack = stacks.wait_until_settled(script.aws, ID, print)
    assert stack is not None
    assert stack.has_failed
    events = [
        ("demo", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [WayOut]"),
        ("WayOut", "CREATE_FAILED", "NatGatewayLimitExceeded: no more"),
        ("Master", "CREATE_FAILED", "Resource creation cancelled"),
        ("Network", "CREATE_IN_PROGRESS", ""),
    ]
    keys = ("LogicalResourceId", "ResourceStatus", "ResourceStatusReason")
    common = {"StackId": ID, "EventId": "1", "StackName": "demo", "Timestamp": datetime.now(UTC)}
    answer = {"StackEvents": [{**common, **dict(zip(keys, event, strict=True))} for event in events]}
    script.formation.add_response("describe_stack_events", answer)
    assert stacks.find_first_failure(script.aws, ID) == add_hint("WayOut: NatGatewayLimitExceeded: no more")


def test_a_stack_of_somebody_else_is_never_touched(script: Script) -> None:
    for action in (stacks.find_stack, stacks.find_cluster, stacks.check_name_is_free):
        script.state("CREATE_COMPLETE", tag="team")
        with pytest.raises(InputError, match="not made by trainscale"):
            action(script.aws, "demo")


@pytest.mark.parametrize("state", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"])
def test_a_name_that_a_failed_start_holds_is_told_with_the_way_out(state: str, script: Script) -> None:
    script.state(state)
    with pytest.raises(InputError, match=r"the remains of a failed start\)\n.*\n.*cluster down --name demo"):
        stacks.check_name_is_free(script.aws, "demo")


def take_down(script: Script) -> None:
    stack = stacks.Stack("demo", ID, "CREATE_COMPLETE", "", datetime.now(UTC), {}, {})
    stacks.delete_stack(script.aws, stack)


def test_a_deletion_that_fails_at_first_is_requested_again(script: Script) -> None:
    script.deletion().state("DELETE_IN_PROGRESS").state("DELETE_FAILED")
    script.deletion().state("DELETE_IN_PROGRESS").state("DELETE_COMPLETE")
    take_down(script)


def test_what_cannot_be_deleted_is_named_with_its_reason(script: Script) -> None:
    for _ in range(2):
        script.deletion().state("DELETE_FAILED")
    script.resource("PublicSubnet", "DELETE_FAILED", "it is held by eni-1")
    with pytest.raises(TrainscaleError) as caught:
        take_down(script)
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "not all of demo could be removed, and AWS may bill for it:",
        "  PublicSubnet demo-PublicSubnet: it is held by eni-1",
    ]
    assert lines[-1].endswith("its Tag Editor finds the tag trainscale-stack = demo")


def test_a_deletion_that_aws_refuses_is_an_error_at_once(script: Script) -> None:
    script.formation.add_client_error("delete_stack", "AccessDenied", "User is not authorized")
    with pytest.raises(TrainscaleError, match="AWS does not allow this: User is not authorized"):
        take_down(script)
