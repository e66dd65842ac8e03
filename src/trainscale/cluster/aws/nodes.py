"""The hosts of a cluster on AWS, the nodes file, and the ssh configuration to reach them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ...errors import InputError, TrainscaleError
from ...worker.type_aliases import JsonObject
from .connect import AwsClients, explain_errors
from .stack import Stack

# The path of the nodes file on every node; node.sh writes it. For a command that runs on the master.
NODES_FILE = Path("/shared/nodes")

TAG = "trainscale-cluster"  # of instances, disks and the file system; in stack.yaml
MASTER, WORKER = "master", "worker"
# A filter of EC2: instances that are not terminated.
EXISTING = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
_FIRST_WORDS = "# trainscale cluster"


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
    """Return the master, then the workers by their addresses, which is the order in which node.sh numbers them."""
    filters = [{"Name": f"tag:{TAG}", "Values": [stack.name]}, EXISTING]
    with explain_errors():
        pages = aws.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        instances = [instance for page in pages for group in page["Reservations"] for instance in group["Instances"]]
    instances.sort(key=lambda instance: ip_address(instance.get("PrivateIpAddress") or "255.255.255.255"))
    masters = [instance for instance in instances if _find_role(instance.get("Tags", [])) == MASTER]
    workers = [instance for instance in instances if _find_role(instance.get("Tags", [])) == WORKER]
    return [
        *(_make_node(instance, MASTER, f"{stack.name}-{MASTER}", stack) for instance in masters),
        *(_make_node(worker, WORKER, f"{stack.name}-{WORKER}{n}", stack) for n, worker in enumerate(workers, start=1)),
    ]


def _make_node(instance: JsonObject, role: str, name: str, stack: Stack) -> ClusterNode:
    fixed_address = stack.outputs.get("MasterAddress", "") if role == MASTER else ""
    return ClusterNode(
        instance["InstanceId"],
        role,
        name,
        instance["InstanceType"],
        instance["State"]["Name"],
        instance.get("PrivateIpAddress", ""),
        instance.get("PublicIpAddress") or fixed_address,
    )


def _find_role(tags: list[dict[str, str]]) -> str:
    return WORKER if any(tag["Key"] == "aws:autoscaling:groupName" for tag in tags) else MASTER


def find_master(aws: AwsClients, stack: Stack) -> ClusterNode:
    for node in list_nodes(aws, stack):
        if node.role == MASTER and node.public_address:
            return node
    raise TrainscaleError(f"the cluster {stack.name!r} has no master with a public address now ({stack.status})")


def find_workers(aws: AwsClients, stack: Stack) -> list[ClusterNode]:
    """Return all workers. Raise TrainscaleError if some do not run: a run on fewer hosts would end too early."""
    workers = [node for node in list_nodes(aws, stack) if node.role == WORKER]
    expected = int(stack.parameters.get("Nodes", len(workers)))
    running = [node for node in workers if node.state == "running" and node.address]
    if len(running) < expected:
        raise TrainscaleError(
            f"{len(running)} of {expected} workers of {stack.name!r} are running ({stack.status})\n"
            f"  more: trainscale cluster status --name {stack.name} --region {aws.region}"
        )
    return running


# ---- files


def format_nodes_file(region: str, stack: Stack, workers: list[ClusterNode]) -> str:
    """Return the nodes file: a line with address and ssh alias for each worker."""
    lines = [f"{_FIRST_WORDS} {stack.name}, {region}: address, ssh alias", *(f"{n.address} {n.name}" for n in workers)]
    return "\n".join(lines) + "\n"


def format_ssh_config(region: str, stack: Stack, nodes: list[ClusterNode], identity: str | None) -> str:
    """Return an ssh configuration for use outside the cluster: it reaches the workers through the master.

    ssh stores a host's key under the id of its instance, because the next cluster has the same private addresses.
    """
    login = stack.parameters.get("Login", "ubuntu")
    jump = f"{stack.name}-{MASTER}"
    lines = [f"{_FIRST_WORDS} {stack.name}, {region}"]
    for node in nodes:
        lines += ["", f"Host {node.name}", f"    HostName {node.public_address or node.address}", f"    User {login}"]
        lines += [f"    HostKeyAlias {node.id}", "    StrictHostKeyChecking accept-new"]
        lines += [f"    IdentityFile {_quote(identity)}"] if identity else []
        lines += [f"    ProxyJump {jump}"] if node.role == WORKER else []
    return "\n".join(lines) + "\n"


def _quote(path: str) -> str:
    return f'"{path}"' if " " in path else path


def check_writable(path: Path) -> None:
    """Raise InputError for a path that holds a file of somebody else."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; -o names a file")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_FIRST_WORDS):
        raise InputError(f"{path} exists and was not written by this command; -o names another file")


def make_ssh_command(
    stack: Stack, master: ClusterNode, command: list[str], forward_agent: bool, identity: str | None
) -> list[str]:
    """Return the ssh command line to the master."""
    argv = ["ssh", "-o", f"HostKeyAlias={master.id}", "-o", "StrictHostKeyChecking=accept-new"]
    argv += ["-A"] if forward_agent else ["-a"]
    argv += ["-i", identity] if identity else []
    argv += [f"{stack.parameters.get('Login', 'ubuntu')}@{master.public_address}"]
    # ssh joins the arguments with blanks and passes them to a shell, so they are quoted.
    return [*argv, "--", shlex.join(command)] if command else argv
