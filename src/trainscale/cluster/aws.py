"""A cluster on AWS: a CloudFormation stack with a master, workers and a shared file system.

CloudFormation creates and deletes all of it. This module requests that, waits, and lists the hosts.
"""

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ..errors import InputError, TrainscaleError

MARK = "trainscale-stack"  # the tag of our stacks, which AWS also puts on all that they create
TAG = "trainscale-cluster"  # of instances, disks and the file system; in aws_stack.yaml
# On every node, written by aws_node.sh. For a command that runs on the master.
NODES_FILE = Path("/shared/nodes")
READY, GONE = "CREATE_COMPLETE", "DELETE_COMPLETE"
MASTER, WORKER = "master", "worker"

_WORKERS = "Workers"  # the name of the auto-scaling group in aws_stack.yaml
_INTERVAL = 5.0  # seconds between two requests while waiting
_ATTEMPTS = 2  # to delete: the first fails, for instance, if a network interface is released late
FIRST_WORDS = "# trainscale cluster"  # of the files that `cluster hosts` writes


# ---- AWS and its errors


@dataclass(frozen=True)
class AwsClients:
    region: str
    cloudformation: Any
    ec2: Any
    autoscaling: Any
    ssm: Any


def find_region(given: str | None) -> str:
    """Never take the region of a profile: a cluster costs money."""
    sources = {"--region": given, **{name: os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")}}
    source, region = next(((name, value) for name, value in sources.items() if value), ("", ""))
    if not region:
        raise InputError("--region: in which region?\n  for example: --region us-east-1, or set AWS_REGION")
    if not re.fullmatch(r"[a-z]{2,4}(-[a-z]+)+-\d+", region):
        raise InputError(f"{source}: {region!r} is not a region; valid: us-east-1, eu-west-2, …")
    return region


def connect(region: str) -> AwsClients:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise InputError("trainscale cluster needs boto3\n  pip install 'trainscale[aws]', or boto3 itself") from None
    # AWS limits the rate of requests; boto3 waits and retries.
    config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10)
    with explain_errors():
        session = boto3.session.Session(region_name=region)
        services = ("cloudformation", "ec2", "autoscaling", "ssm")
        return AwsClients(region, *(session.client(service, config=config) for service in services))


_BAD_CREDENTIALS = re.compile(
    "AuthFailure|ExpiredToken|IncompleteSignature|InvalidAccessKeyId|InvalidClientTokenId|RequestExpired"
    "|SignatureDoesNotMatch|UnrecognizedClientException"
)
_CREDENTIALS = (
    "  provide them as for the AWS command line: `aws configure`, `aws sso login`, AWS_PROFILE,\n"
    "  or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
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
    r"LimitExceeded": (
        "a quota of your account is used up; a cluster needs a VPC, an internet gateway, a NAT gateway and two Elastic"
        " IP addresses; see Service Quotas in the console"
    ),
    r"UnsupportedOperation|\bUnsupported\b|not supported in your requested": (
        "this zone does not offer this type in this way; try another --zone, or another type"
    ),
    r"PendingVerification|OptInRequired": "AWS has not yet verified the account for this; its e-mail says how",
}


def add_hint(message: str) -> str:
    hint = next((hint for pattern, hint in _HINTS.items() if re.search(pattern, message)), None)
    return f"{message}\n  {hint}" if hint else message


@contextmanager
def explain_errors() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        code, message = read_code(error), error.response.get("Error", {}).get("Message") or str(error)
        if _BAD_CREDENTIALS.match(code):
            raise InputError(f"AWS does not accept these credentials: {message}\n{_CREDENTIALS}") from error
        if code.startswith("AccessDenied") or code == "UnauthorizedOperation":
            raise TrainscaleError(f"AWS does not allow this: {message}\n  docs/aws.md lists what must be") from error
        raise TrainscaleError(f"AWS refused {error.operation_name}: {add_hint(f'{code}: {message}')}") from error
    except BotoCoreError as error:
        kind = type(error).__name__
        if re.search("Credential|Token|SSO|ProfileNotFound", kind):
            raise InputError(f"AWS: no credentials found ({error})\n{_CREDENTIALS}") from error
        if re.search("Connect|Timeout|ConnectionClosed", kind):
            raise TrainscaleError(f"AWS cannot be reached: {error}\n  are region and network right?") from error
        raise TrainscaleError(f"AWS: {kind}: {error}") from error
    except ResponseParserError as error:  # such as the page of a proxy
        raise TrainscaleError(f"the answer did not come from AWS: {error}") from error


def read_code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


# ---- the stack


@dataclass(frozen=True)
class Stack:
    name: str
    id: str
    status: str
    reason: str
    created: datetime
    parameters: dict[str, str]
    outputs: dict[str, str]

    @property
    def login(self) -> str:
        return self.parameters.get("Login", "ubuntu")

    @property
    def is_in_progress(self) -> bool:
        return self.status.endswith("_IN_PROGRESS")

    @property
    def has_failed(self) -> bool:
        return not self.is_in_progress and self.status != READY


class CannotStartWorkers(TrainscaleError):
    """Waiting does not change AWS's reason."""


def find_stack(aws: AwsClients, name: str) -> Stack | None:
    """``name`` may be an id. Refuse a stack that trainscale did not create."""
    with explain_errors():
        try:
            (stack,) = aws.cloudformation.describe_stacks(StackName=name)["Stacks"]
        except aws.cloudformation.exceptions.ClientError as error:
            if read_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
    if stack["StackStatus"] == GONE:
        return None
    if not any(tag["Key"] == MARK for tag in stack.get("Tags", [])):
        raise InputError(f"the stack {name!r} in {aws.region} was not made by trainscale; it is left alone")
    return Stack(
        name=stack["StackName"],
        id=stack["StackId"],
        status=stack["StackStatus"],
        reason=stack.get("StackStatusReason", ""),
        created=stack["CreationTime"],
        parameters={item["ParameterKey"]: item["ParameterValue"] for item in stack.get("Parameters", [])},
        outputs={item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])},
    )


def find_cluster(aws: AwsClients, name: str) -> Stack:
    stack = find_stack(aws, name)
    if stack is None:
        raise InputError(f"there is no cluster {name!r} in {aws.region}\n  --name and --region select the cluster")
    return stack


def check_name_is_free(aws: AwsClients, name: str) -> None:
    stack = find_stack(aws, name)
    if stack is not None:
        remark = ", the remains of a failed start" if stack.has_failed else ""
        options = f"--name {name} --region {aws.region}"
        raise InputError(
            f"--name: there is already a cluster {name!r} in {aws.region} ({stack.status}{remark})\n"
            f"  show it: trainscale cluster status {options}\n  take it down: trainscale cluster down {options}"
        )


def wait_until_settled(aws: AwsClients, stack_id: str, report: Callable[[str], None]) -> Stack | None:
    """Wait until nothing is in progress. Return None if the stack is gone.

    boto3's waiter would wait half an hour for workers that AWS cannot start.
    """
    reported: set[str] = set()
    while (stack := find_stack(aws, stack_id)) and stack.is_in_progress:
        for message in read_launch_failures(aws, stack) if stack.status == "CREATE_IN_PROGRESS" else ():
            explained = add_hint(message)
            # Capacity may become free, but a quota does not grow by itself.
            if explained != message and not re.search(_NO_CAPACITY, message):
                raise CannotStartWorkers(explained)
            if message not in reported:
                report(f"Workers not started yet: {explained}")
                reported.add(message)
        time.sleep(_INTERVAL)
    return stack


def read_launch_failures(aws: AwsClients, stack: Stack) -> list[str]:
    with explain_errors():
        resources = aws.cloudformation.describe_stack_resources(StackName=stack.id)["StackResources"]
        group = {item.get("LogicalResourceId"): item.get("PhysicalResourceId") for item in resources}
        if not group.get(_WORKERS):
            return []
        activities = aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=group[_WORKERS])["Activities"]
    messages = [item.get("StatusMessage") for item in activities if item["StatusCode"] == "Failed"]
    return list(dict.fromkeys(filter(None, messages)))


def find_first_failure(aws: AwsClients, stack_id: str) -> str:
    """Return the first reason, without what was cancelled because of it."""
    first = ""
    with explain_errors():
        for page in aws.cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id):
            for event in page["StackEvents"]:  # the newest first
                reason = event.get("ResourceStatusReason", "")
                if event.get("ResourceStatus", "").endswith("_FAILED") and reason and "cancelled" not in reason:
                    first = f"{event['LogicalResourceId']}: {add_hint(reason)}"
    return first


def delete_stack(aws: AwsClients, stack: Stack) -> None:
    from botocore.exceptions import WaiterError

    waiter = aws.cloudformation.get_waiter("stack_delete_complete")
    patience = {"Delay": _INTERVAL, "MaxAttempts": int(3600 / _INTERVAL)}
    with explain_errors():
        for _ in range(_ATTEMPTS):
            aws.cloudformation.delete_stack(StackName=stack.id)
            try:
                waiter.wait(StackName=stack.id, WaiterConfig=patience)
                return
            except WaiterError:
                continue
        resources = aws.cloudformation.describe_stack_resources(StackName=stack.id)["StackResources"]
        remaining = [
            f"  {item.get('LogicalResourceId')} {item.get('PhysicalResourceId')}: {item.get('ResourceStatusReason')}"
            for item in resources
            if item["ResourceStatus"] == "DELETE_FAILED"
        ]
    lines = "\n".join(remaining or [f"  the stack {stack.name}"])
    raise TrainscaleError(
        f"not all of {stack.name} could be removed, and AWS may bill for it:\n{lines}\n"
        f"  try again: trainscale cluster down --name {stack.name} --region {aws.region}\n"
        f"  or delete them in the AWS console ({aws.region}); its Tag Editor finds the tag {MARK} = {stack.name}"
    )


# ---- the nodes


@dataclass(frozen=True)
class ClusterNode:
    id: str
    role: str
    name: str  # the ssh alias, the same on every node and in the ssh configuration
    type: str
    state: str
    address: str  # private; for connections between nodes
    public_address: str


def list_nodes(aws: AwsClients, stack: Stack) -> list[ClusterNode]:
    """Return the master, then the workers by address, as aws_node.sh does."""
    filters = [
        {"Name": f"tag:{TAG}", "Values": [stack.name]},
        {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
    ]
    with explain_errors():
        pages = aws.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        groups = [group for page in pages for group in page["Reservations"]]
    instances = [instance for group in groups for instance in group["Instances"]]
    instances.sort(key=lambda instance: ip_address(instance.get("PrivateIpAddress") or "255.255.255.255"))
    nodes: dict[str, list[ClusterNode]] = {MASTER: [], WORKER: []}
    for instance in instances:
        is_worker = any(tag["Key"] == "aws:autoscaling:groupName" for tag in instance.get("Tags", []))
        role, number = (WORKER, len(nodes[WORKER]) + 1) if is_worker else (MASTER, "")
        other_address = "" if is_worker else stack.outputs.get("MasterAddress", "")
        node = ClusterNode(
            id=instance["InstanceId"],
            role=role,
            name=f"{stack.name}-{role}{number}",
            type=instance["InstanceType"],
            state=instance["State"]["Name"],
            address=instance.get("PrivateIpAddress", ""),
            public_address=instance.get("PublicIpAddress") or other_address,
        )
        nodes[role].append(node)
    return [*nodes[MASTER], *nodes[WORKER]]


def find_master(aws: AwsClients, stack: Stack) -> ClusterNode:
    for node in list_nodes(aws, stack):
        if node.role == MASTER and node.public_address:
            return node
    raise TrainscaleError(f"the cluster {stack.name!r} has no master with a public address now ({stack.status})")


def format_ssh_config(region: str, stack: Stack, nodes: list[ClusterNode], identity: str | None) -> str:
    """Host keys go by instance: the next cluster has the same addresses."""
    text = f"{FIRST_WORDS} {stack.name}, {region}\n"
    for node in nodes:
        options = {
            "HostName": node.public_address or node.address,
            "User": stack.login,
            "HostKeyAlias": node.id,
            "StrictHostKeyChecking": "accept-new",
            "IdentityFile": f'"{identity}"' if identity and " " in identity else identity,
            "ProxyJump": f"{stack.name}-{MASTER}" if node.role == WORKER else None,
        }
        lines = [f"    {key} {value}\n" for key, value in options.items() if value]
        text += "".join(["\n", f"Host {node.name}\n", *lines])
    return text


def make_ssh_command(
    stack: Stack, master: ClusterNode, command: list[str], forward_agent: bool, identity: str | None
) -> list[str]:
    argv = ["ssh", "-o", f"HostKeyAlias={master.id}", "-o", "StrictHostKeyChecking=accept-new"]
    argv += ["-A"] if forward_agent else ["-a"]
    argv += ["-i", identity] if identity else []
    argv += [f"{stack.login}@{master.public_address}"]
    # ssh passes the arguments, joined with blanks, to a shell.
    return [*argv, "--", shlex.join(command)] if command else argv
