"""``trainscale cluster up|status|hosts|ssh|down``: a cluster on AWS."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster.aws import nodes, teardown
from ..cluster.aws import stack as stacks
from ..cluster.aws.connect import AwsClients, add_hint, connect, find_region
from ..cluster.aws.instances import INSTANCE_TYPES, find_instance_type
from ..cluster.aws.request import ClusterOptions, ClusterRequest, check_name, make_request, parse_ssh_range
from ..cluster.aws.stack import MARK, Stack
from ..errors import InputError, TrainscaleError
from ..record.files import write_atomically
from ..report.numbers import format_rough_duration
from .actions import run_action
from .cluster_view import confirm, print_nodes, print_request, show_events
from .parser import Parser
from .signals import interrupt_on_signals

if TYPE_CHECKING:
    from rich.console import Console

ACTIONS = {
    "up": "create a cluster: shows what AWS will bill for, asks, and waits until it is ready",
    "status": "show its state and its nodes",
    "hosts": "write the nodes file, and an ssh configuration to reach the nodes",
    "ssh": "log in to the master",
    "down": "remove all of it",
}
_HELP = f"""usage: trainscale cluster ACTION [options]

A cluster on AWS: a master, workers close together and a shared file system, in one CloudFormation stack.

actions:
{chr(10).join(f"  {name:<7} {description}" for name, description in ACTIONS.items())}

  trainscale cluster up --nodes 4 --type p5.48xlarge --key my-key --region us-east-1 --ssh-from 203.0.113.7/32
  trainscale cluster ACTION --help      every option of an action

--name (default: trainscale) and --region select the cluster in every action."""


def main(argv: list[str]) -> int:
    actions = {
        "up": _create_cluster,
        "status": _show_status,
        "hosts": _write_hosts,
        "ssh": _log_in,
        "down": _remove_cluster,
    }
    return run_action("cluster", argv, actions, _HELP)


def _make_parser(action: str, description: str) -> Parser:
    parser = Parser(f"cluster {action}", description)
    parser.add_argument(
        "--name", default="trainscale", help="the name of the cluster and of its stack (default: %(default)s)"
    )
    parser.add_argument(
        "--region", help="the AWS region (default: AWS_REGION or AWS_DEFAULT_REGION, but never that of a profile)"
    )
    return parser


def _read(parser: Parser, argv: list[str]) -> tuple[argparse.Namespace, str]:
    options = parser.read(argv)
    check_name(options.name)
    return options, find_region(options.region)


def _format_command(action: str, name: str, region: str) -> str:
    return f"trainscale cluster {action} --name {name} --region {region}"


def _make_console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


# ---- up


def _create_cluster(argv: list[str]) -> int:
    options, region = _read(_make_up_parser(), argv)
    cluster_options = ClusterOptions(
        options.name,
        options.nodes,
        find_instance_type(options.type, "--type"),
        find_instance_type(options.master_type, "--master-type"),
        options.image,
        options.master_image,
        options.disk,
        options.key,
        options.user,
        options.zone,
        parse_ssh_range(options.ssh_from),
    )
    if not options.yes and not sys.stdin.isatty():
        raise InputError(
            f"AWS bills for {options.nodes} × {options.type} and a master, and there is no terminal to ask on; "
            "--yes starts them without asking"
        )
    aws = connect(region)
    stacks.check_name_is_free(aws, options.name)
    request = make_request(aws, cluster_options)
    print_request(request, region)
    if not options.yes and not confirm("Create it?"):
        print("nothing was created")
        return 1
    with interrupt_on_signals():
        return _create(aws, request)


def _make_up_parser() -> Parser:
    parser = _make_parser("up", "Create a cluster on AWS. AWS bills for it from now until cluster down.")
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="the number of workers")
    parser.add_argument("--type", required=True, help="their EC2 instance type, such as p5.48xlarge")
    parser.add_argument("--key", required=True, help="the name of an EC2 key pair, for ssh")
    parser.add_argument(
        "--ssh-from", required=True, metavar="CIDR", help="addresses that may log in by ssh, such as 203.0.113.7/32"
    )
    parser.add_argument("--zone", help="the availability zone (default: the first that offers the types)")
    parser.add_argument(
        "--image", help="the image of the workers: ami-…, or a parameter that names one (default: by their type)"
    )
    parser.add_argument(
        "--master-type", default="m7i.xlarge", metavar="TYPE", help="the type of the master (default: %(default)s)"
    )
    parser.add_argument("--master-image", metavar="IMAGE", help="the image of the master (default: by its type)")
    parser.add_argument("--user", default="ubuntu", help="the user name in the images (default: %(default)s)")
    parser.add_argument(
        "--disk", type=int, default=200, metavar="GIB", help="the disk of every node (default: %(default)s)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _create(aws: AwsClients, request: ClusterRequest) -> int:
    console = _make_console()
    began = time.monotonic()
    name = request.name
    hints = (
        f"  look: {_format_command('status', name, aws.region)} (--wait follows it as here)\n"
        f"  remove all: {_format_command('down', name, aws.region)}"
    )
    stack_id = stacks.create_stack(aws, request)
    try:
        stack = _follow(console, aws, stack_id, name)
    except KeyboardInterrupt:
        console.print(f"{name}: AWS continues to create it, and bills for it\n{hints}", markup=False)
        raise
    except stacks.CannotStartWorkers as error:
        # CloudFormation would wait half an hour before it gives up, and what did start would cost money meanwhile.
        console.print(f"{name}: AWS cannot start the workers; removing what was created", markup=False)
        _take_down(console, aws, name)
        raise TrainscaleError(f"{name} was not created: {error}") from None
    except TrainscaleError as error:
        raise TrainscaleError(f"{error}\n{hints}") from error
    if stack is None or stack.status != stacks.READY:
        reason = stacks.explain_creation_failure(aws, stack_id, stack)
        raise TrainscaleError(
            f"{name} was not created {reason}\n  remove what is left: {_format_command('down', name, aws.region)}"
        )
    console.print(f"{name}: ready in {format_rough_duration(time.monotonic() - began)}", markup=False)
    for label, action in (("nodes file", "hosts"), ("log in", "ssh"), ("remove all", "down")):
        print(f"  {label + ':':<11} {_format_command(action, name, aws.region)}")
    return 0


def _follow(console: Console, aws: AwsClients, stack_id: str, name: str) -> Stack | None:
    with show_events(console, name) as watch:
        return stacks.follow_stack(aws, stack_id, watch)


# ---- status


def _show_status(argv: list[str]) -> int:
    parser = _make_parser("status", "Show the state of a cluster and its nodes.")
    parser.add_argument("--wait", action="store_true", help="follow the events until nothing is in progress")
    options, region = _read(parser, argv)
    aws = connect(region)
    stack = stacks.find_cluster(aws, options.name)
    if options.wait and stack.is_in_progress:
        with interrupt_on_signals():
            _follow(_make_console(), aws, stack.id, stack.name)
        stack = stacks.find_cluster(aws, options.name)
    age = (datetime.now(UTC) - stack.created).total_seconds()
    print(f"cluster {stack.name} in {region}: {stack.status}{f', {stack.reason}' if stack.reason else ''}")
    print(f"  created {format_rough_duration(age)} ago; AWS bills for it until cluster down")
    print_nodes(nodes.list_nodes(aws, stack))
    group = stack.outputs.get("Workers")
    for message in dict.fromkeys(stacks.read_launch_failures(aws, group) if group else []):
        print(f"  not started: {add_hint(message)}")
    if stack.has_failed:
        print(f"  {stacks.find_first_failure(stacks.read_events(aws, stack.id)) or 'it cannot be used any more'}")
        print(f"  remove what is left: {_format_command('down', stack.name, region)}")
        return 1
    return 0


# ---- hosts


def _write_hosts(argv: list[str]) -> int:
    parser = _make_parser("hosts", "Write the nodes file with the workers' addresses and ssh aliases.")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("nodes"), metavar="FILE", help="the nodes file (default: %(default)s)"
    )
    parser.add_argument(
        "-i", "--identity", metavar="FILE", help="the private key of the key pair, for the ssh configuration"
    )
    options, region = _read(parser, argv)
    output: Path = options.output
    config = output.with_name(f"{output.name}.ssh_config")
    for path in (output, config):
        nodes.check_writable(path)
    aws = connect(region)
    stack = stacks.find_cluster(aws, options.name)
    workers = nodes.find_workers(aws, stack)
    identity = options.identity and str(Path(options.identity).expanduser().resolve())
    hosts = [nodes.find_master(aws, stack), *workers]
    write_atomically(config, nodes.format_ssh_config(region, stack, hosts, identity))
    write_atomically(output, nodes.format_nodes_file(region, stack, workers))
    instance_type = INSTANCE_TYPES.get(workers[0].type)
    gpus = f" -g {instance_type.gpus}" if instance_type and instance_type.gpus else ""
    flags = f"--hosts {shlex.quote(str(output))} --ssh-config {shlex.quote(str(config))}"
    print(f"wrote {output}: {len(workers)} hosts; and {config}, which reaches them through the master")
    print(f"  from here:     trainscale check {flags}")
    print(f"                 trainscale run {flags}{gpus}")
    print(f"  on the master: trainscale run --hosts {nodes.NODES_FILE}{gpus}")
    return 0


# ---- ssh


def _log_in(argv: list[str]) -> int:
    parser = _make_parser("ssh", "Log in to the master with OpenSSH, or run a command there.")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="after --; run it on the master, not a shell")
    parser.add_argument("-A", dest="forward", action="store_true", help="forward the ssh agent (default: off)")
    parser.add_argument("-i", "--identity", metavar="FILE", help="the private key of the key pair")
    parser.add_argument("--print", dest="only_print", action="store_true", help="print the command and do not run it")
    options, region = _read(parser, argv)
    aws = connect(region)
    stack = stacks.find_cluster(aws, options.name)
    master = nodes.find_master(aws, stack)
    command = nodes.make_ssh_command(stack, master, options.command, options.forward, options.identity)
    if options.only_print:
        print(shlex.join(command))
        return 0
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise InputError(f"there is no ssh here; the command would be:\n  {shlex.join(command)}") from None


# ---- down


def _remove_cluster(argv: list[str]) -> int:
    parser = _make_parser("down", "Remove a cluster and all that belongs to it, whatever its state.")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options, region = _read(parser, argv)
    name = options.name
    if not options.yes and not sys.stdin.isatty():
        raise InputError(f"this removes the cluster {name!r} and its shared file system; --yes does it without asking")
    aws = connect(region)
    if not teardown.exists(aws, name):
        print(f"there is no cluster {name!r} in {region}, and nothing is left of one")
        return 0
    question = f"Remove the cluster {name} in {region}, with all files on its shared file system?"
    if not options.yes and not confirm(question):
        print("nothing was removed")
        return 1
    console = _make_console()
    began = time.monotonic()
    try:
        with interrupt_on_signals():
            _take_down(console, aws, name)
    except KeyboardInterrupt:
        console.print(f"{name}: AWS may continue to remove it; the same command continues", markup=False)
        raise
    console.print(
        f"{name}: removed in {format_rough_duration(time.monotonic() - began)}, nothing is left", markup=False
    )
    return 0


def _take_down(console: Console, aws: AwsClients, name: str) -> None:
    with show_events(console, name) as watch:
        remaining = teardown.take_down(aws, name, watch)
    if remaining:
        lines = "\n".join(f"  {item}" for item in remaining)
        raise TrainscaleError(
            f"not all of {name} could be removed, and AWS may bill for it:\n{lines}\n"
            f"  try again: {_format_command('down', name, aws.region)}\n"
            f"  or delete them in the AWS console ({aws.region}); its Tag Editor finds the tag {MARK} = {name}"
        )
