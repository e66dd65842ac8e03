"""``trainscale launch``: run a user's own program on many hosts."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster.allocation import SLURM, is_inside_slurm
from ..errors import InputError
from ..launch import programs as launching
from ..launch.launchers.target import make_launcher
from ..spec.config import FILL, ROUND_ROBIN
from ..spec.devices import LOCALHOST, Host
from ..spec.groups import list_plugin_setting_keys
from ..spec.settings import DURATION, whole
from ..worker.job import SERVER, WORKER
from .parser import Parser, add_settings, read_experiment, typed
from .signals import interrupt_on_signals

_MOST_PROCESSES = 65536  # each needs a port
_SETTINGS = (
    *("launcher", "hosts", "hosts_count", "gpus_per_host", "remote_dir", "remote_python", "setup", "interface"),
    *("controller_address", "ssh_config", "forward_agent", "device", "nodes", "queue", "yarn", "ray_address"),
)


def main(argv: list[str]) -> int:
    parser = _make_parser()
    options = parser.read(argv)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command or not options.command[0]:
        raise InputError(f"no command to launch\n  such as: {parser.prog} -n 2 python my_training.py")
    names: list[str] = []
    for text in options.env:
        names += [text] if "=" in text else filter(None, map(str.strip, text.split(",")))
    variables = {
        launching.ALL_ROLES: dict(_split_variable("--env", name, os.environ) for name in names),
        WORKER: dict(_split_variable("--env-worker", text) for text in options.env_worker),
        SERVER: dict(_split_variable("--env-server", text) for text in options.env_server),
    }
    # A path that does not depend on where a keeper starts.
    folder, base = (options.copy, "~") if options.copy else (options.folder or "", str(Path.cwd()))
    folder = folder if folder.startswith("~") else str(Path(base, folder))
    request = launching.ProgramRequest(
        workers=options.num_workers,
        servers=options.num_servers,
        scheduler=options.num_servers > 0 if options.scheduler is None else options.scheduler,
        placement=options.deal,
        shows_own_gpus=options.gpus == "own",
        chief=options.chief,
        command=options.command,
        folder=folder,
        variables=variables,
    )
    experiment = read_experiment(options)
    if experiment.resources.launcher == SLURM and not is_inside_slurm(os.environ):
        example = "such as by: salloc --nodes 2 trainscale launch -n 2 …"
        raise InputError(f"launcher slurm: a program is launched inside an allocation, {example}")
    host_launcher = make_launcher(experiment)

    def print_line(program: launching.Program, text: str, error: bool) -> None:
        print(f"[{program.label}] {text}", file=sys.stderr if error else sys.stdout, flush=True)

    def print_note(text: str) -> None:
        print(f"trainscale: {text}", file=sys.stderr, flush=True)

    try:
        with interrupt_on_signals():
            hosts = (Host(LOCALHOST),) if host_launcher.local else host_launcher.hosts()
            archive = launching.pack_folder(Path.cwd()) if options.copy else None
            usable_hosts = launching.prepare_hosts(host_launcher, hosts, folder, archive)
            slots = experiment.resources.gpus_per_host
            usable_hosts = [replace(host, slots=slots or host.slots) for host in usable_hosts]
            programs = launching.assign_roles(request, usable_hosts)
            run = launching.ProgramRun(programs, print_line, print_note, request.chief)
            return launching.run_programs(host_launcher, run, request, options.limit)
    finally:
        host_launcher.close()


def _make_parser() -> Parser:
    parser = Parser("launch")
    parser.usage = "trainscale launch -n N [options] COMMAND …"
    add = parser.add
    count = typed(whole(0, _MOST_PROCESSES))
    add("-n --num-workers", "N", "number of workers", type=typed(whole(1, _MOST_PROCESSES)), required=True)
    servers = "number of parameter servers, which run the same command (default: 0)"
    add("-s --num-servers", "N", servers, type=count, default=0)
    scheduler = "start MXNet's scheduler, one more process (default: on if there are servers)"
    add("--scheduler", None, scheduler, action=argparse.BooleanOptionalAction, default=None)
    add("--chief", "", "make worker 0 the chief in TF_CONFIG; when it ends, everything ends")
    placement = (
        "round-robin: assign processes to the hosts in turn, servers first; fill: use a host completely before"
        " the next host (default: round-robin)"
    )
    add("--placement", None, placement, choices=(FILL, ROUND_ROBIN), default=ROUND_ROBIN, dest="deal")
    gpus = "the GPUs that a worker sees: all of its host, or its own share, numbered from 0 (default: all)"
    add("--gpus", None, gpus, choices=("all", "own"), default="all")
    repeated: dict[str, Any] = {"action": "append", "default": []}
    value = "set a variable for every process (default value: that of this shell)"
    add("--env", "NAME[=VALUE]", value, **repeated)
    add("--env-worker", "NAME=VALUE", "set a variable for workers only; may be repeated", **repeated)
    add("--env-server", "NAME=VALUE", "set a variable for servers only; may be repeated", **repeated)
    add("--folder", "DIR", "the folder on every host in which the processes run (default: the current directory)")
    copy = "first copy the current directory to DIR on every host, and run there"
    add("--copy --sync-dst-dir", "DIR", copy, dest="copy")
    add("--timeout", "TIME", "end everything after this time (default: never)", type=typed(DURATION), dest="limit")
    # The names in dmlc's launcher.
    add("--hostfile --host-file", None, argparse.SUPPRESS, dest="hosts", action="append")
    add_settings(parser, (*_SETTINGS, *list_plugin_setting_keys()))
    add("command", "COMMAND", "the program and its arguments", nargs=argparse.REMAINDER)
    return parser


def _split_variable(flag: str, text: str, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """A name alone takes its value from ``environment``."""
    separator = "=" if "=" in text or environment is not None else ":"  # MXNet's launcher has a colon
    name, has_value, value = text.partition(separator)
    if name and has_value:
        return name, value
    if environment is None or not name:
        raise InputError(f"{flag}: {text!r}; valid: NAME=VALUE")
    if name not in environment:
        valid = "a variable that is set, or NAME=VALUE"
        raise InputError(f"{flag}: {name} is not set here; valid: {valid}")
    return name, environment[name]
