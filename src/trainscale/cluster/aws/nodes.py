"""The hosts of a cluster on AWS: who they are, the nodes file, and the ssh configuration that leads to them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ...errors import InputError, TrainscaleError
from .connect import Aws, told
from .stack import Stack

# Where node.sh puts the nodes file on every node, for a command that runs on the master.
NODES_FILE = Path("/shared/nodes")

TAG = "trainscale-cluster"  # on instances, disks and the file system; in stack.yaml
MASTER, WORKER = "master", "worker"
_THERE = ["pending", "running", "stopping", "stopped"]
_OPENING = "# trainscale cluster"


@dataclass(frozen=True)
class Node:
    id: str
    role: str
    name: str  # the ssh alias, the same on every node and in the ssh configuration
    type: str
    state: str
    address: str  # private; the one that nodes use among themselves
    public_address: str


def nodes(aws: Aws, stack: Stack) -> list[Node]:
    """The master, then the workers in the order of their addresses: the order in which node.sh numbers them."""
    filters = [{"Name": f"tag:{TAG}", "Values": [stack.name]}, {"Name": "instance-state-name", "Values": _THERE}]
    with told():
        pages = aws.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        found = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
    known: list[Node] = []
    for role in (MASTER, WORKER):
        own = [one for one in found if _role(one.get("Tags", [])) == role]
        own.sort(key=lambda one: ip_address(one.get("PrivateIpAddress") or "255.255.255.255"))
        for number, one in enumerate(own, start=1):
            known.append(
                Node(
                    one["InstanceId"],
                    role,
                    f"{stack.name}-{role}" + (str(number) if role == WORKER else ""),
                    one["InstanceType"],
                    one["State"]["Name"],
                    one.get("PrivateIpAddress", ""),
                    one.get("PublicIpAddress") or (stack.outputs.get("MasterAddress", "") if role == MASTER else ""),
                )
            )
    return known


def _role(tags: list[dict[str, str]]) -> str:
    return WORKER if any(tag["Key"] == "aws:autoscaling:groupName" for tag in tags) else MASTER


def master_of(aws: Aws, stack: Stack) -> Node:
    for node in nodes(aws, stack):
        if node.role == MASTER and node.public_address:
            return node
    raise TrainscaleError(f"the cluster {stack.name!r} has no master with a public address now ({stack.status})")


def workers_of(aws: Aws, stack: Stack) -> list[Node]:
    """All of them, or an error: with a part of the hosts a ladder would end too early and nobody would know why."""
    found = [node for node in nodes(aws, stack) if node.role == WORKER]
    wanted = int(stack.parameters.get("Nodes", len(found)))
    running = [node for node in found if node.state == "running" and node.address]
    if len(running) < wanted:
        raise TrainscaleError(
            f"{len(running)} of {wanted} workers of {stack.name!r} are running ({stack.status})\n"
            f"  trainscale cluster status --name {stack.name} --region {aws.region} says more"
        )
    return running


# ---- files


def nodes_text(region: str, stack: Stack, workers: list[Node]) -> str:
    """The nodes file: address, ssh alias."""
    lines = [f"{_OPENING} {stack.name}, {region}: address, ssh alias", *(f"{n.address} {n.name}" for n in workers)]
    return "\n".join(lines) + "\n"


def ssh_config_text(region: str, stack: Stack, found: list[Node], identity: str | None) -> str:
    """For machines outside: the aliases of the nodes file, the workers through the master.

    A host's key is filed under its instance: the next cluster has the same private addresses, but other hosts.
    """
    login = stack.parameters.get("Login", "ubuntu")
    jump = f"{stack.name}-{MASTER}"
    lines = [f"{_OPENING} {stack.name}, {region}"]
    for node in found:
        lines += ["", f"Host {node.name}", f"    HostName {node.public_address or node.address}", f"    User {login}"]
        lines += [f"    HostKeyAlias {node.id}", "    StrictHostKeyChecking accept-new"]
        lines += [f"    IdentityFile {_quoted(identity)}"] if identity else []
        lines += [f"    ProxyJump {jump}"] if node.role == WORKER else []
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def check_writable(path: Path) -> None:
    """A file of ours may be replaced, any other may not."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory; -o names a file")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_OPENING):
        raise InputError(f"{path}: is there already, and not written by this command; -o names another file")


def ssh_command(stack: Stack, master: Node, command: list[str], forward_agent: bool, identity: str | None) -> list[str]:
    """OpenSSH's command to the master."""
    words = ["ssh", "-o", f"HostKeyAlias={master.id}", "-o", "StrictHostKeyChecking=accept-new"]
    words += ["-A"] if forward_agent else ["-a"]
    words += ["-i", identity] if identity else []
    words += [f"{stack.parameters.get('Login', 'ubuntu')}@{master.public_address}"]
    # ssh joins the words of a command with blanks and gives them to a shell; they mean there what they meant here.
    return [*words, "--", shlex.join(command)] if command else words
