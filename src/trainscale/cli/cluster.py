"""``trainscale cluster up|status|hosts|ssh|down``: a cluster on AWS."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster.aws import nodes as hosts
from ..cluster.aws import request, teardown
from ..cluster.aws import stack as stacks
from ..cluster.aws.connect import Aws, connect, explained, find_region
from ..cluster.aws.instances import INSTANCES, PRICES, Instance, instance
from ..cluster.aws.stack import Stack, StackEvent
from ..errors import InputError, TrainscaleError
from ..record.files import write_atomically
from ..report.numbers import rough_duration
from .actions import run_action
from .parser import Parser
from .signals import signals_interrupt

if TYPE_CHECKING:
    from rich.console import Console

ACTIONS = {
    "up": "make a cluster: shows what it costs, asks, and waits until it is ready",
    "status": "how it is, which nodes it has, what it has cost so far",
    "hosts": "write the nodes file, and an ssh configuration that leads to the nodes",
    "ssh": "log in to the master",
    "down": "remove all of it",
}
_HELP = f"""usage: trainscale cluster ACTION [options]

A cluster on AWS: a master, workers close together, a shared file system; made and removed as one CloudFormation stack.

actions:
{chr(10).join(f"  {name:<7} {words}" for name, words in ACTIONS.items())}

  trainscale cluster up --nodes 4 --type p5.48xlarge --key my-key --region us-east-1 --ssh-from 203.0.113.7/32
  trainscale cluster ACTION --help      every option of an action

The same --name (default: trainscale) and --region say to every action which cluster is meant."""
_NAME = "trainscale"
_MASTER = "m7i.xlarge"


def main(argv: list[str]) -> int:
    return run_action(
        "cluster", argv, {"up": _up, "status": _status, "hosts": _hosts, "ssh": _ssh, "down": _down}, _HELP
    )


def _parser(action: str, description: str) -> Parser:
    parser = Parser(f"cluster {action}", description)
    parser.add_argument(
        "--name", default=_NAME, help="the cluster's name, also that of its stack (default: %(default)s)"
    )
    parser.add_argument("--region", help="the AWS region (or AWS_REGION, AWS_DEFAULT_REGION; never a profile's own)")
    return parser


def _read(parser: Parser, words: list[str]) -> tuple[argparse.Namespace, str]:
    options = parser.read(words)
    request.check_name(options.name)
    return options, find_region(options.region)


def _again(action: str, name: str, region: str) -> str:
    return f"trainscale cluster {action} --name {name} --region {region}"


# ---- up


def _up(words: list[str]) -> int:
    parser = _parser("up", "Make a cluster on AWS. It costs money from now until cluster down.")
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="how many workers")
    parser.add_argument("--type", required=True, help="their EC2 instance type, such as p5.48xlarge")
    parser.add_argument("--key", required=True, help="the name of an EC2 key pair, for ssh")
    parser.add_argument(
        "--ssh-from", required=True, metavar="CIDR", help="from where ssh is let in, such as 203.0.113.7/32"
    )
    parser.add_argument("--zone", help="the availability zone (default: the first that offers the type)")
    parser.add_argument("--image", help="of the workers: ami-…, or a parameter that names one (default: by the type)")
    parser.add_argument("--master-type", default=_MASTER, metavar="TYPE", help="default: %(default)s")
    parser.add_argument("--master-image", metavar="IMAGE", help="of the master (default: by its type)")
    parser.add_argument("--user", default="ubuntu", help="the images' user (default: %(default)s)")
    parser.add_argument("--disk", type=int, default=200, metavar="GIB", help="of every node (default: %(default)s)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options, region = _read(parser, words)
    if options.nodes < 1:
        raise InputError(f"--nodes: {options.nodes} is too small; valid: 1 or more")
    if options.disk < 75:
        raise InputError(f"--disk: {options.disk} GiB are too few for the images with drivers; valid: 75 or more")
    worker, master = instance(options.type, "--type"), instance(options.master_type, "--master-type")
    ssh_from = request.check_range(options.ssh_from)
    parts = request.costs(options.nodes, worker, master, options.disk)
    if not options.yes and not sys.stdin.isatty():
        raise InputError(f"this costs {request.total(parts)}, and here is nobody to ask; --yes starts it")

    aws = connect(region)
    stacks.check_free(aws, options.name)
    request.check_key(aws, options.key)
    wanted = request.ClusterRequest(
        options.name,
        options.nodes,
        worker,
        master,
        request.find_image(aws, options.image, worker, "--image"),
        request.find_image(aws, options.master_image, master, "--master-image"),
        options.disk,
        options.key,
        options.user,
        request.find_zone(aws, options.zone, worker, master),
        ssh_from,
    )
    _show(wanted, region, parts)
    if not options.yes and not _confirmed("Make it?"):
        print("nothing was made")
        return 1
    with signals_interrupt():
        return _make(aws, wanted)


def _show(wanted: request.ClusterRequest, region: str, parts: list[tuple[str, float | None]]) -> None:
    print(f"cluster {wanted.name} in {wanted.zone}: {_workers_words(wanted.nodes, wanted.worker)}")
    print(f"  workers' image  {wanted.worker_image.id}, {wanted.worker_image.name}")
    print(f"  master's image  {wanted.master_image.id}, {wanted.master_image.name}")
    print(f"  ssh             from {wanted.ssh_from}, with the key pair {wanted.key}")
    for what, dollars in parts:
        print(f"  {'unknown' if dollars is None else f'${dollars:,.2f}':>11}  {what}")
    print(f"{request.total(parts)} ({PRICES}), and what is stored on the shared file system and moved out of AWS")


def _workers_words(nodes: int, worker: Instance) -> str:
    devices = f"{worker.gpus} × {worker.gpu}" if worker.gpus else f"{worker.cpus} virtual CPUs"
    fabric = f", {worker.efa} EFA" if worker.efa else ""
    return f"{nodes} {'worker' if nodes == 1 else 'workers'} {worker.name} ({devices}{fabric} each) and a master"


def _confirmed(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _make(aws: Aws, wanted: request.ClusterRequest) -> int:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    later = (
        f"  look: {_again('status', wanted.name, aws.region)} (with --wait it goes on as here)\n"
        f"  remove all: {_again('down', wanted.name, aws.region)}"
    )
    stack_id = stacks.create(aws, wanted)
    try:
        made = _follow(console, aws, stack_id, wanted.name)
    except KeyboardInterrupt:
        console.print(f"{wanted.name}: AWS goes on making it, and it costs money\n{later}", markup=False)
        raise
    except stacks.CannotStart as error:
        # What did start would cost money until CloudFormation gives up, half an hour from now.
        console.print(f"{wanted.name}: it cannot be had; taking down what was made", markup=False)
        _take_down(console, aws, wanted.name)
        raise TrainscaleError(f"{wanted.name} was not made: {error}") from None
    except TrainscaleError as error:
        raise TrainscaleError(f"{error}\n{later}") from error
    if made is None or made.status != stacks.READY:
        raise TrainscaleError(_failure(aws, wanted.name, stack_id, made))
    console.print(f"{wanted.name}: ready in {rough_duration(time.monotonic() - began)}", markup=False)
    print(f"  nodes file: {_again('hosts', wanted.name, aws.region)}")
    print(f"  log in:     {_again('ssh', wanted.name, aws.region)}")
    print(f"  remove all: {_again('down', wanted.name, aws.region)}")
    return 0


def _failure(aws: Aws, name: str, stack_id: str, stack: Stack | None) -> str:
    reason = stacks.first_failure(stacks.events(aws, stack_id)) or (stack.reason if stack else "") or "no reason given"
    state = stack.status if stack else "gone"
    return f"{name} was not made ({state}): {reason}\n  remove what is left: {_again('down', name, aws.region)}"


def _follow(console: Console, aws: Aws, stack_id: str, name: str) -> Stack | None:
    with _view(console, name) as watch:
        return stacks.follow(aws, stack_id, watch)


@contextmanager
def _view(console: Console, name: str) -> Iterator[Callable[[StackEvent], None]]:
    """A line for each part that is done or failed; on a terminal also one that shows what is under way."""
    began = time.monotonic()
    under_way: dict[str, str] = {}

    def line(event: StackEvent) -> str | None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        verb = event.status.partition("_")[0].lower()
        if event.status.endswith("_IN_PROGRESS"):
            under_way[event.resource] = verb
            return None
        under_way.pop(event.resource, None)
        if event.status.endswith("_COMPLETE"):
            return f"{minutes:3d}:{seconds:02d}  {event.resource} {verb}d"
        what = f"could not {verb}" if event.status else "not started yet"
        return f"{minutes:3d}:{seconds:02d}  {event.resource} {what}: {explained(event.reason)}"

    def watch(event: StackEvent) -> None:
        said = line(event)
        if said and (event.resource != name or not event.status.endswith("_COMPLETE")):
            console.print(said, markup=False)
        if status is not None:
            status.update(f"waiting for {', '.join(n for n in under_way if n != name) or name}")

    if not console.is_terminal:
        status = None
        yield watch
        return
    with console.status(f"waiting for {name}") as status:
        yield watch


# ---- status


def _status(words: list[str]) -> int:
    parser = _parser("status", "How a cluster is, its nodes, and what it has cost so far.")
    parser.add_argument("--wait", action="store_true", help="follow what is going on until it is over")
    options, region = _read(parser, words)
    aws = connect(region)
    stack = stacks.find_ours(aws, options.name)
    if options.wait and stack.moving:
        from rich.console import Console

        with signals_interrupt():
            _follow(Console(highlight=False, soft_wrap=True), aws, stack.id, stack.name)
        stack = stacks.find_ours(aws, options.name)
    found = hosts.nodes(aws, stack)
    age = (datetime.now(UTC) - stack.created).total_seconds()
    print(f"cluster {stack.name} in {region}: {stack.status}{f', {stack.reason}' if stack.reason else ''}")
    print(f"  made {rough_duration(age)} ago{_spent(stack, age)}")
    _print_nodes(found)
    group = stack.outputs.get("Workers")
    for message in dict.fromkeys(stacks.troubles_of(aws, group) if group else []):
        print(f"  not started: {explained(message)}")
    if stack.failed:
        print(f"  {stacks.first_failure(stacks.events(aws, stack.id)) or 'it is of no use any more'}")
        print(f"  remove what is left: {_again('down', stack.name, region)}")
        return 1
    return 0


def _spent(stack: Stack, seconds: float) -> str:
    """From the beginning until now, as if all nodes had been there all the time."""
    try:
        worker, master = INSTANCES[stack.parameters["WorkerType"]], INSTANCES[stack.parameters["MasterType"]]
        parts = request.costs(int(stack.parameters["Nodes"]), worker, master, int(stack.parameters["DiskGiB"]))
    except (KeyError, ValueError):
        return ""
    known = sum(dollars for _, dollars in parts if dollars is not None) * seconds / 3600
    return f"; {request.total(parts)}, ${known:,.2f} so far ({PRICES})"


def _print_nodes(found: list[hosts.Node]) -> None:
    """As wide as it is: an address that is cut off is of no use."""
    rows = [("node", "type", "state", "address", "public address", "instance")]
    rows += [(n.name, n.type, n.state, n.address, n.public_address, n.id) for n in found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows if found else [("no nodes",)]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


# ---- hosts


def _hosts(words: list[str]) -> int:
    parser = _parser("hosts", "Write the nodes file: the workers' addresses and ssh aliases.")
    parser.add_argument("-o", "--output", type=Path, default=Path("nodes"), metavar="FILE", help="default: %(default)s")
    parser.add_argument(
        "-i", "--identity", metavar="FILE", help="the private key of the key pair, for the ssh configuration"
    )
    options, region = _read(parser, words)
    output: Path = options.output
    config = output.with_name(f"{output.name}.ssh_config")
    for path in (output, config):
        hosts.check_writable(path)
    aws = connect(region)
    stack = stacks.find_ours(aws, options.name)
    workers = hosts.workers_of(aws, stack)
    identity = options.identity and str(Path(options.identity).expanduser().resolve())
    reached = [hosts.master_of(aws, stack), *workers]
    write_atomically(config, hosts.ssh_config_text(region, stack, reached, identity))
    write_atomically(output, hosts.nodes_text(region, stack, workers))
    kind = INSTANCES.get(workers[0].type)
    gpus = f" -g {kind.gpus}" if kind and kind.gpus else ""
    here = f"--hosts {shlex.quote(str(output))}"
    there = f"{here} --ssh-config {shlex.quote(str(config))}"
    print(f"wrote {output}: {len(workers)} hosts; and {config}, which leads there through the master")
    print(f"  from here:     trainscale check {there}")
    print(f"                 trainscale run {there}{gpus}")
    print(f"  on the master: trainscale run --hosts {hosts.NODES_FILE}{gpus}")
    return 0


# ---- ssh


def _ssh(words: list[str]) -> int:
    parser = _parser("ssh", "Log in to the master with OpenSSH, or run a command there.")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="after --; run on the master instead of a shell")
    parser.add_argument("-A", dest="forward", action="store_true", help="forward the ssh agent (off unless asked for)")
    parser.add_argument("-i", "--identity", metavar="FILE", help="the private key of the key pair")
    parser.add_argument("--print", dest="only_print", action="store_true", help="print the command and do not run it")
    options, region = _read(parser, words)
    aws = connect(region)
    stack = stacks.find_ours(aws, options.name)
    command = hosts.ssh_command(stack, hosts.master_of(aws, stack), options.command, options.forward, options.identity)
    if options.only_print:
        print(shlex.join(command))
        return 0
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise InputError(f"there is no ssh here; the command would be:\n  {shlex.join(command)}") from None


# ---- down


def _down(words: list[str]) -> int:
    parser = _parser("down", "Remove a cluster and all that belongs to it, in whatever state it is.")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options, region = _read(parser, words)
    name = options.name
    if not options.yes and not sys.stdin.isatty():
        raise InputError(f"this removes the cluster {name!r} and its shared file system; --yes does it without asking")
    aws = connect(region)
    if not teardown.exists(aws, name):
        print(f"there is no cluster {name!r} in {region}, and nothing is left of one")
        return 0
    if not options.yes and not _confirmed(
        f"Remove the cluster {name} in {region}, with all on its shared file system?"
    ):
        print("nothing was removed")
        return 1
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    try:
        with signals_interrupt():
            _take_down(console, aws, name)
    except KeyboardInterrupt:
        console.print(f"{name}: AWS may go on removing it; the same command continues", markup=False)
        raise
    console.print(f"{name}: gone in {rough_duration(time.monotonic() - began)}, nothing is left", markup=False)
    return 0


def _take_down(console: Console, aws: Aws, name: str) -> None:
    with _view(console, name) as watch:
        left = teardown.take_down(aws, name, watch)
    if left:
        lines = "\n".join(f"  {one}" for one in left)
        raise TrainscaleError(
            f"not all of {name} could be removed, and it may cost money:\n{lines}\n"
            f"  the same command tries again: {_again('down', name, aws.region)}"
        )
