"""AWS's clients for a region, and its errors in words. boto3 is imported here and nowhere else, when it is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, TrainscaleError

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d+")

_WHO_ARE_YOU = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_NOT_ALLOWED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_CREDENTIALS = (
    "  give them as the AWS command line takes them: `aws configure`, `aws sso login`, AWS_PROFILE,\n"
    "  or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True)
class Aws:
    """A region, and the services used in it."""

    region: str
    cloudformation: Any
    ec2: Any
    autoscaling: Any
    efs: Any
    ssm: Any


def find_region(given: str | None) -> str:
    """The region that was asked for. Never a profile's own: what costs money is said, not inherited."""
    variable = next((name for name in _REGION_VARIABLES if os.environ.get(name)), None)
    region = given or (variable and os.environ[variable])
    if not region:
        raise InputError(
            "--region: in which region?\n  for example: --region us-east-1, or AWS_REGION=us-east-1 before the command"
        )
    if not _REGION.fullmatch(region):
        raise InputError(
            f"{'--region' if given else variable}: {region!r} is no region; valid: us-east-1, eu-west-2, …"
        )
    return region


def connect(region: str) -> Aws:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise InputError(
            "trainscale cluster needs boto3, which is not installed\n  pip install 'trainscale[aws]', or boto3 itself"
        ) from None
    # Creating a large stack asks often; AWS then answers "slower", and boto3 knows how to wait.
    patient = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10)
    services = ("cloudformation", "ec2", "autoscaling", "efs", "ssm")
    with told():
        session = boto3.session.Session(region_name=region)
        return Aws(region, *(session.client(service, config=patient) for service in services))


@contextmanager
def told() -> Iterator[None]:
    """What AWS or boto3 object to becomes one message of ours."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError
    except ImportError:  # then nothing of it can be raised
        yield
        return
    try:
        yield
    except ClientError as error:
        raise _refused(error) from error
    except BotoCoreError as error:
        raise _unreached(error) from error
    except ResponseParserError as error:  # a proxy's page, say
        raise TrainscaleError(f"AWS gave an answer that is not AWS's: {error}") from error


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", "")) or str(error)


def _refused(error: ClientError) -> TrainscaleError:
    code, message = code_of(error), message_of(error)
    if code in _WHO_ARE_YOU:
        return InputError(f"AWS does not accept these credentials: {message}\n{_CREDENTIALS}")
    if code in _NOT_ALLOWED:
        return TrainscaleError(
            f"AWS does not allow this: {message}\n  docs/aws.md lists what the user or role must be allowed to do"
        )
    return TrainscaleError(f"AWS refused {error.operation_name}: {explained(f'{code}: {message}')}")


def _unreached(error: BotoCoreError) -> TrainscaleError:
    kind = type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return InputError(f"AWS: no credentials found ({error})\n{_CREDENTIALS}")
    if kind == "ProfileNotFound" or "Token" in kind or "SSO" in kind:
        return InputError(f"AWS: {error}\n{_CREDENTIALS}")
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return TrainscaleError(f"AWS cannot be reached: {error}\n  is the region's name right, and the network up?")
    return TrainscaleError(f"AWS: {kind}: {error}")


# What AWS says when it cannot give what was asked for, and what can be done. Found in the middle of longer messages.
_NO_ROOM = r"InsufficientInstanceCapacity|do not have sufficient|sufficient capacity"
_HINTS = {
    _NO_ROOM: (
        "AWS has no room for that many of this type close together now; try --zone with another zone, another "
        "region, fewer nodes, or later"
    ),
    r"VcpuLimitExceeded|vCPU limit|InstanceLimitExceeded": (
        "your account's quota for this family is too small; ask for more in the console under Service Quotas, "
        "EC2, 'Running On-Demand … instances' (counted in vCPUs), or take fewer nodes"
    ),
    r"AddressLimitExceeded": "your account's quota of Elastic IP addresses is used up; a cluster needs two",
    r"VpcLimitExceeded": "your account's quota of VPCs in this region is used up; a cluster needs one",
    r"NatGatewayLimitExceeded": "your account's quota of NAT gateways in this zone is used up; a cluster needs one",
    r"InternetGatewayLimitExceeded": "your account's quota of internet gateways is used up; a cluster needs one",
    r"LimitExceeded": "a quota of your account is used up; see Service Quotas in the console",
    r"UnsupportedOperation|\bUnsupported\b|not supported in your requested": (
        "this type cannot be had like this in this zone; try --zone with another zone, or another type"
    ),
    r"PendingVerification|OptInRequired": "AWS has not yet verified the account for this; its mail says how",
}


def explained(message: str) -> str:
    """AWS's message, followed by what to do about it where that is known."""
    hint = next((hint for pattern, hint in _HINTS.items() if re.search(pattern, message)), None)
    return f"{message}\n  {hint}" if hint else message


def is_final(message: str) -> bool:
    """Whether it is of no use to wait: a quota does not grow, but room may be found."""
    return explained(message) != message and not re.search(_NO_ROOM, message)
