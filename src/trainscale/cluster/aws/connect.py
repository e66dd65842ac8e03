"""Clients of AWS's services in a region, and messages for AWS's errors. Only this folder imports boto3, when needed."""

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

_BAD_CREDENTIALS = {
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
    "  provide them as for the AWS command line: `aws configure`, `aws sso login`, AWS_PROFILE,\n"
    "  or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True)
class AwsClients:
    """Clients of the services that a cluster uses, in one region."""

    region: str
    cloudformation: Any
    ec2: Any
    autoscaling: Any
    efs: Any
    ssm: Any


def find_region(given: str | None) -> str:
    """Return the region from the flag or the environment, never a profile's own: a cluster costs money."""
    variable = next((name for name in _REGION_VARIABLES if os.environ.get(name)), None)
    region = given or (variable and os.environ[variable])
    if not region:
        raise InputError(
            "--region: in which region?\n  for example: --region us-east-1, or AWS_REGION=us-east-1 before the command"
        )
    if not _REGION.fullmatch(region):
        raise InputError(
            f"{'--region' if given else variable}: {region!r} is not a region; valid: us-east-1, eu-west-2, …"
        )
    return region


def connect(region: str) -> AwsClients:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise InputError(
            "trainscale cluster needs boto3, which is not installed\n  pip install 'trainscale[aws]', or boto3 itself"
        ) from None
    # AWS limits the rate of requests; boto3 waits and retries.
    config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10)
    services = ("cloudformation", "ec2", "autoscaling", "efs", "ssm")
    with explain_errors():
        session = boto3.session.Session(region_name=region)
        return AwsClients(region, *(session.client(service, config=config) for service in services))


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn errors of AWS and boto3 into TrainscaleError with one message."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError
    except ImportError:  # without boto3 there are no such errors
        yield
        return
    try:
        yield
    except ClientError as error:
        raise _explain_client_error(error) from error
    except BotoCoreError as error:
        raise _explain_connection_error(error) from error
    except ResponseParserError as error:  # such as the page of a proxy
        raise TrainscaleError(f"the answer did not come from AWS: {error}") from error


def read_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def read_message(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", "")) or str(error)


def _explain_client_error(error: ClientError) -> TrainscaleError:
    code, message = read_code(error), read_message(error)
    if code in _BAD_CREDENTIALS:
        return InputError(f"AWS does not accept these credentials: {message}\n{_CREDENTIALS}")
    if code in _NOT_ALLOWED:
        return TrainscaleError(
            f"AWS does not allow this: {message}\n  docs/aws.md lists what the user or role must be allowed to do"
        )
    return TrainscaleError(f"AWS refused {error.operation_name}: {add_hint(f'{code}: {message}')}")


def _explain_connection_error(error: BotoCoreError) -> TrainscaleError:
    kind = type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return InputError(f"AWS: no credentials found ({error})\n{_CREDENTIALS}")
    if kind == "ProfileNotFound" or "Token" in kind or "SSO" in kind:
        return InputError(f"AWS: {error}\n{_CREDENTIALS}")
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return TrainscaleError(f"AWS cannot be reached: {error}\n  is the region's name right, and the network up?")
    return TrainscaleError(f"AWS: {kind}: {error}")


# Parts of AWS's messages, and what the user can do.
_NO_CAPACITY = r"InsufficientInstanceCapacity|do not have sufficient|sufficient capacity"
_HINTS = {
    _NO_CAPACITY: (
        "AWS has no capacity for that many of this type close together now; try another --zone, another region, "
        "fewer nodes, or later"
    ),
    r"VcpuLimitExceeded|vCPU limit|InstanceLimitExceeded": (
        "your account's quota for this family is too small; request more in the console under Service Quotas, "
        "EC2, 'Running On-Demand … instances' (counted in vCPUs), or use fewer nodes"
    ),
    r"AddressLimitExceeded": "your account's quota of Elastic IP addresses is used up; a cluster needs two",
    r"VpcLimitExceeded": "your account's quota of VPCs in this region is used up; a cluster needs one",
    r"NatGatewayLimitExceeded": "your account's quota of NAT gateways in this zone is used up; a cluster needs one",
    r"InternetGatewayLimitExceeded": "your account's quota of internet gateways is used up; a cluster needs one",
    r"LimitExceeded": "a quota of your account is used up; see Service Quotas in the console",
    r"UnsupportedOperation|\bUnsupported\b|not supported in your requested": (
        "this zone does not offer this type in this way; try another --zone, or another type"
    ),
    r"PendingVerification|OptInRequired": "AWS has not yet verified the account for this; its e-mail says how",
}


def add_hint(message: str) -> str:
    """Return AWS's message, followed by what to do about it, if that is known."""
    hint = next((hint for pattern, hint in _HINTS.items() if re.search(pattern, message)), None)
    return f"{message}\n  {hint}" if hint else message


def is_permanent(message: str) -> bool:
    """Tell whether waiting is useless: capacity may become free, but a quota does not grow by itself."""
    return add_hint(message) != message and not re.search(_NO_CAPACITY, message)
