"""What a cluster is to be: its name, from where ssh is let in, its cost, and the region that is never guessed."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from trainscale.cluster.aws.connect import explained, find_region, is_final, told
from trainscale.cluster.aws.instances import instance
from trainscale.cluster.aws.request import check_name, check_range, costs, total
from trainscale.errors import InputError, TrainscaleError


@pytest.mark.parametrize(
    ("given", "taken"),
    [("203.0.113.7", "203.0.113.7/32"), ("198.51.100.0/24", "198.51.100.0/24"), ("10.0.0.0/8", "10.0.0.0/8")],
)
def test_a_range_or_an_address_may_log_in(given: str, taken: str) -> None:
    assert check_range(given) == taken


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0.0.0.0/0", "--ssh-from: 0.0.0.0/0 is the whole world, or nearly"),
        ("128.0.0.0/1", "is the whole world, or nearly"),
        ("198.51.100.7/24", "--ssh-from: 198.51.100.7/24 has host bits set"),
        ("home", "--ssh-from: 'home' does not appear to be"),
        ("2001:db8::/32", "is IPv6; the master has an IPv4 address"),
        ("", "--ssh-from:"),
    ],
)
def test_other_ranges_are_refused_with_the_way_to_find_ones_own(given: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_range(given)
    assert message in str(caught.value)
    assert "checkip.amazonaws.com" in str(caught.value)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a_b", "-a", "a" * 41, "a;b"])
def test_a_name_is_that_of_a_stack_and_of_hosts(name: str) -> None:
    with pytest.raises(InputError, match="--name"):
        check_name(name)
    assert check_name("my-Cluster-2") == "my-Cluster-2"


def test_the_cost_is_that_of_all_nodes_disks_and_addresses() -> None:
    parts = costs(4, instance("p5.48xlarge"), instance("m7i.xlarge"), 200)
    assert dict(parts)["4 × p5.48xlarge"] == pytest.approx(220.16)
    assert total(parts) == "about $220.53 per hour"


def test_a_type_without_a_price_makes_the_cost_a_lower_limit() -> None:
    assert total(costs(1, instance("p5e.48xlarge"), instance("m7i.xlarge"), 200)).startswith("more than $0.")


# ---- the region


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_a_region_nothing_goes(no_region: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--region: in which region"):
        find_region(None)


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_a_variable_may_name_it(name: str, no_region: pytest.MonkeyPatch) -> None:
    no_region.setenv(name, "eu-west-2")
    assert find_region(None) == "eu-west-2"
    assert find_region("us-gov-east-1") == "us-gov-east-1"


def test_what_is_no_region_is_told_with_where_it_was_said(no_region: pytest.MonkeyPatch) -> None:
    no_region.setenv("AWS_REGION", "oregon")
    with pytest.raises(InputError, match="AWS_REGION: 'oregon' is no region"):
        find_region(None)
    with pytest.raises(InputError, match="--region: 'us-east' is no region"):
        find_region("us-east")


# ---- AWS's errors in words


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("ExpiredToken", InputError, "AWS does not accept these credentials"),
        ("InvalidClientTokenId", InputError, "AWS does not accept these credentials"),
        ("AccessDenied", TrainscaleError, "AWS does not allow this"),
        ("UnauthorizedOperation", TrainscaleError, "AWS does not allow this"),
        ("VpcLimitExceeded", TrainscaleError, "quota of VPCs in this region is used up"),
        ("Throttling", TrainscaleError, "AWS refused CreateStack: Throttling: the message"),
    ],
)
def test_a_refusal_is_one_message_with_what_to_do(code: str, kind: type[TrainscaleError], message: str) -> None:
    with pytest.raises(TrainscaleError) as caught, told():
        raise ClientError({"Error": {"Code": code, "Message": "the message"}}, "CreateStack")
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert "the message" in str(caught.value)


def test_missing_credentials_are_told_with_how_to_give_them() -> None:
    with pytest.raises(InputError, match=r"no credentials found.*\n.*aws configure"), told():
        raise NoCredentialsError


def test_a_quota_is_final_and_missing_room_is_not() -> None:
    assert is_final("... VcpuLimitExceeded ...")
    assert not is_final("InsufficientInstanceCapacity")
    assert not is_final("Your instance is being started")
    assert "--zone" in explained("InsufficientInstanceCapacity")
