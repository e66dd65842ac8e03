"""The request for a cluster: its name, the addresses that may log in, prices, the region, and messages of AWS."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from trainscale.cluster.aws.connect import add_hint, explain_errors, find_region, is_permanent
from trainscale.cluster.aws.prices import find_hourly_price, read_price
from trainscale.cluster.aws.request import check_name, parse_ssh_range
from trainscale.errors import InputError, TrainscaleError


@pytest.mark.parametrize(
    ("given", "taken"),
    [("203.0.113.7", "203.0.113.7/32"), ("198.51.100.0/24", "198.51.100.0/24"), ("10.0.0.0/8", "10.0.0.0/8")],
)
def test_a_range_or_an_address_may_log_in(given: str, taken: str) -> None:
    assert parse_ssh_range(given) == taken


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0.0.0.0/0", "--ssh-from: 0.0.0.0/0 admits nearly the whole Internet"),
        ("128.0.0.0/1", "admits nearly the whole Internet"),
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


@pytest.mark.parametrize("name", ["", "1st", "a b", "a_b", "-a", "a" * 41, "a;b"])
def test_a_name_is_that_of_a_stack_and_of_hosts(name: str) -> None:
    with pytest.raises(InputError, match="--name"):
        check_name(name)
    assert check_name("my-Cluster-2") == "my-Cluster-2"


PRODUCT = {"terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": {"pricePerUnit": {"USD": "55.0400000000"}}}}}}}


def test_a_price_is_read_from_the_price_list() -> None:
    assert read_price([json.dumps(PRODUCT)]) == 55.04
    assert read_price([]) is None
    assert read_price([json.dumps({"terms": {"Reserved": {}}})]) is None


def test_a_price_list_that_cannot_be_reached_gives_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert find_hourly_price("us-east-1", "p5.48xlarge") is None


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
        ("VpcLimitExceeded", TrainscaleError, "quota of VPCs in this region is used up"),
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


def test_a_quota_is_final_and_missing_room_is_not() -> None:
    assert is_permanent("... VcpuLimitExceeded ...")
    assert not is_permanent("InsufficientInstanceCapacity")
    assert not is_permanent("Your instance is being started")
    assert "--zone" in add_hint("InsufficientInstanceCapacity")
