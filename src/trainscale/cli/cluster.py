"""``trainscale cluster up|status|hosts|ssh|down``: a cluster on AWS."""

import os
import re
import shlex
import sys
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from ..cluster import aws as stacks
from ..cluster import aws_template as template
from ..cluster.aws import AwsClients, add_hint, connect, find_region
from ..errors import InputError, TrainscaleError
from ..record.files import write_atomically
from ..report.documents import load_template
from ..report.numbers import format_rough_duration
from ..spec.settings import whole
from .parser import Parser, typed
from .signals import interrupt_on_signals

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,39}")  # its hosts' names begin with it
_SMALLEST_DISK = 75  # GiB

_EPILOG = """--name (default: trainscale) and --region select the cluster in every action.

examples:
  trainscale cluster up --nodes 4 --type p5.48xlarge --key my-key --region us-east-1 --ssh-from 203.0.113.7/32
  trainscale cluster ACTION --help      every option of an action"""


def main(argv: list[str]) -> int:
    about = "A cluster on AWS: a master, workers close together and a shared file system, in one CloudFormation stack."
    parser = Parser("cluster", about, epilog=_EPILOG, formatter_class=RawDescriptionHelpFormatter)
    actions = {}
    for name, (function, about) in _ACTIONS.items():
        actions[name] = add = parser.add_action(name, function, about).add
        add("--name", "NAME", "the cluster and its stack (default: %(default)s)", default="trainscale")
        add("--region", "REGION", "the AWS region (default: AWS_REGION or AWS_DEFAULT_REGION)")
    for action in ("up", "down"):
        actions[action]("--yes", "", "do not ask")
    for action in ("hosts", "ssh"):
        actions[action]("-i --identity", "FILE", "the private key of the key pair")
    add = actions["up"]
    add("--nodes", "N", "the number of workers", type=typed(whole(1)), required=True)
    add("--type", "TYPE", "their EC2 instance type, such as p5.48xlarge", required=True)
    add("--key", "KEY", "the name of an EC2 key pair, for ssh", required=True)
    add("--ssh-from", "CIDR", "addresses that may log in by ssh, such as 203.0.113.7/32", required=True)
    add("--zone", "ZONE", "the availability zone (default: the first that offers the types)")
    add("--image", "IMAGE", "the workers' image: ami-…, or a parameter (default: by type)")
    add("--master-type", "TYPE", "the type of the master (default: %(default)s)", default="m7i.xlarge")
    add("--master-image", "IMAGE", "the image of the master (default: by its type)")
    add("--user", "USER", "the user name in the images (default: %(default)s)", default="ubuntu")
    add("--disk", "GIB", "the disk of every node (default: %(default)s)", type=typed(whole(1)), default=200)
    actions["status"]("--wait", "", "wait until nothing is in progress")
    actions["hosts"]("-o --output", "FILE", "the nodes file (default: nodes)", type=Path, default=Path("nodes"))
    add = actions["ssh"]
    add("command", "COMMAND", "after --; run it there", nargs="*")
    add("-A", "", "forward the ssh agent (default: off)", dest="forward")
    add("--print", "", "only print the command", dest="only_print")
    options = parser.read(argv)
    if not _NAME.fullmatch(options.name):
        valid = "a letter, then at most 39 letters, digits and hyphens"
        raise InputError(f"--name: {options.name!r}; valid: {valid}")
    options.region = find_region(options.region)
    return int(options.run(options))


def _format_command(action: str, name: str, region: str) -> str:
    return f"trainscale cluster {action} --name {name} --region {region}"


def create(options: Namespace) -> int:
    worker = template.find_instance_type(options.type, "--type")
    master = template.find_instance_type(options.master_type, "--master-type")
    ssh_from = template.parse_ssh_range(options.ssh_from)
    if options.disk < _SMALLEST_DISK:
        valid = f"valid: {_SMALLEST_DISK} or more"
        raise InputError(f"--disk: {options.disk} GiB are too few for the images with drivers; {valid}")
    if not options.yes and not sys.stdin.isatty():
        bill = f"AWS bills for {options.nodes} × {options.type} and a master"
        raise InputError(f"{bill}, and there is no terminal to ask on; --yes starts them without asking")
    aws = connect(options.region)
    stacks.check_name_is_free(aws, options.name)
    request = template.ClusterRequest(
        options.name,
        options.nodes,
        worker,
        master,
        template.find_image(aws, options.image, worker, "--image"),
        template.find_image(aws, options.master_image, master, "--master-image"),
        options.disk,
        options.key,
        options.user,
        template.find_zone(aws, options.zone, worker, master),
        ssh_from,
    )
    print(load_template(__package__, "request.j2").render(request=request))
    if not options.yes and not _confirm("Create it?"):
        print("nothing was created")
        return 1
    with interrupt_on_signals():
        began, name = time.monotonic(), request.name
        look, down = (_format_command(action, name, aws.region) for action in ("status", "down"))
        hints = f"  look: {look} (--wait waits as here)\n  remove all: {down}"
        stack_id = template.create_stack(aws, request)
        try:
            stack = _wait(aws, stack_id, f"CloudFormation creates {name}, usually in ten minutes")
        except KeyboardInterrupt:
            print(f"{name}: AWS continues to create it, and bills for it\n{hints}")
            raise
        except stacks.CannotStartWorkers as error:
            # What did start costs money.
            print(f"{name}: AWS cannot start the workers; removing what was created", flush=True)
            stacks.delete_stack(aws, stacks.find_cluster(aws, name))
            raise TrainscaleError(f"{name} was not created: {error}") from None
        except TrainscaleError as error:
            raise TrainscaleError(f"{error}\n{hints}") from error
        if stack is None or stack.status != stacks.READY:
            status, reason = (stack.status, stack.reason) if stack else ("gone", "")
            reason = stacks.find_first_failure(aws, stack_id) or reason or "no reason given"
            failure = f"{name} was not created ({status}): {reason}"
            raise TrainscaleError(f"{failure}\n  remove what is left: {down}")
        print(f"{name}: ready in {format_rough_duration(time.monotonic() - began)}")
        for label, action in (("nodes file", "hosts"), ("log in", "ssh"), ("remove all", "down")):
            print(f"  {label + ':':<11} {_format_command(action, name, aws.region)}")
        return 0


def _confirm(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _wait(aws: AwsClients, stack_id: str, text: str) -> stacks.Stack | None:
    console = Console(highlight=False, soft_wrap=True)
    with console.status(text):
        return stacks.wait_until_settled(aws, stack_id, partial(console.print, markup=False))


def show_status(options: Namespace) -> int:
    aws = connect(options.region)
    stack = stacks.find_cluster(aws, options.name)
    if options.wait and stack.is_in_progress:
        with interrupt_on_signals():
            _wait(aws, stack.id, f"waiting for {stack.name}")
        stack = stacks.find_cluster(aws, options.name)
    age = (datetime.now(UTC) - stack.created).total_seconds()
    reason = f", {stack.reason}" if stack.reason else ""
    print(f"cluster {stack.name} in {options.region}: {stack.status}{reason}")
    print(f"  created {format_rough_duration(age)} ago; AWS bills for it until cluster down")
    nodes = stacks.list_nodes(aws, stack)
    rows = [("node", "type", "state", "address", "public address", "instance")]
    rows += [(n.name, n.type, n.state, n.address, n.public_address, n.id) for n in nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    # Without a limit on the width, because an address that is cut off is useless.
    for row in rows if nodes else [("no nodes",)]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print(f"  {'  '.join(cells).rstrip()}")
    for message in stacks.read_launch_failures(aws, stack):
        print(f"  not started: {add_hint(message)}")
    if stack.has_failed:
        print(f"  {stacks.find_first_failure(aws, stack.id) or 'it cannot be used any more'}")
        print(f"  remove what is left: {_format_command('down', stack.name, options.region)}")
        return 1
    return 0


def write_hosts(options: Namespace) -> int:
    output: Path = options.output
    config = output.with_name(f"{output.name}.ssh_config")
    for path in (output, config):
        if path.is_dir():
            raise InputError(f"{path} is a directory; -o names a file")
        if path.exists() and not path.read_bytes().startswith(stacks.FIRST_WORDS.encode()):
            raise InputError(f"{path} exists and was not written by this command; -o names another file")
    aws = connect(options.region)
    stack = stacks.find_cluster(aws, options.name)
    nodes = [node for node in stacks.list_nodes(aws, stack) if node.role == stacks.WORKER]
    workers = [node for node in nodes if node.state == "running" and node.address]
    expected = int(stack.parameters.get("Nodes", len(nodes)))
    if len(workers) < expected:
        raise TrainscaleError(
            f"{len(workers)} of {expected} workers of {stack.name!r} are running ({stack.status})\n"
            f"  more: {_format_command('status', stack.name, aws.region)}"
        )
    identity = options.identity and str(Path(options.identity).expanduser().resolve())
    hosts = [stacks.find_master(aws, stack), *workers]
    write_atomically(config, stacks.format_ssh_config(options.region, stack, hosts, identity))
    head = f"{stacks.FIRST_WORDS} {stack.name}, {options.region}: address, ssh alias\n"
    write_atomically(output, head + "".join(f"{node.address} {node.name}\n" for node in workers))
    instance_type = template.INSTANCE_TYPES.get(workers[0].type)
    gpus = f" -g {instance_type.gpus}" if instance_type and instance_type.gpus else ""
    flags = f"--hosts {shlex.quote(str(output))} --ssh-config {shlex.quote(str(config))}"
    print(f"wrote {output}: {len(workers)} hosts; and {config}, which reaches them through the master")
    print(f"  from here:     trainscale check {flags}")
    print(f"                 trainscale run {flags}{gpus}")
    print(f"  on the master: trainscale run --hosts {stacks.NODES_FILE}{gpus}")
    return 0


def log_in(options: Namespace) -> int:
    aws = connect(options.region)
    stack = stacks.find_cluster(aws, options.name)
    master = stacks.find_master(aws, stack)
    command = stacks.make_ssh_command(stack, master, options.command, options.forward, options.identity)
    if options.only_print:
        print(shlex.join(command))
        return 0
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        line = shlex.join(command)
        raise InputError(f"there is no ssh here; the command would be:\n  {line}") from None


def remove(options: Namespace) -> int:
    name = options.name
    if not options.yes and not sys.stdin.isatty():
        effect = f"this removes the cluster {name!r} and its shared file system"
        raise InputError(f"{effect}; --yes does it without asking")
    aws = connect(options.region)
    stack = stacks.find_stack(aws, name)
    if stack is None:
        print(f"there is no cluster {name!r} in {options.region}, and nothing is left of one")
        return 0
    files = "with all files on its shared file system"
    if not options.yes and not _confirm(f"Remove the cluster {name} in {options.region}, {files}?"):
        print("nothing was removed")
        return 1
    began = time.monotonic()
    try:
        with interrupt_on_signals(), Console().status(f"CloudFormation removes {name}"):
            stacks.delete_stack(aws, stack)
    except KeyboardInterrupt:
        print(f"{name}: AWS may continue to remove it; the same command continues")
        raise
    seconds = format_rough_duration(time.monotonic() - began)
    print(f"{name}: removed in {seconds}, nothing is left")
    return 0


_ACTIONS = {
    "up": (create, "create a cluster: shows what AWS bills for until cluster down, asks, and waits until it is ready"),
    "status": (show_status, "show the state of a cluster and its nodes"),
    "hosts": (write_hosts, "write the nodes file with the workers' addresses, and an ssh configuration to reach them"),
    "ssh": (log_in, "log in to the master with OpenSSH, or run a command there"),
    "down": (remove, "remove a cluster and all that belongs to it, whatever its state"),
}
