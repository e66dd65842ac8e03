"""``trainscale launch``: a user's own program on many hosts, with the variables by which its framework finds the
others.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import tarfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster.allocation import inside_slurm
from ..cluster.devices import UsableHost
from ..cluster.hosts import Host
from ..cluster.target import SLURM, Target, find_target
from ..errors import InputError, TrainscaleError
from ..launch.connections.keeper import HostError, causes
from ..launch.inspection.host_query import Question, ask, usable_host
from ..launch.launchers.base import Launcher
from ..launch.launchers.catalog import launcher
from ..launch.programs.assignment import Program, ProgramRequest, assign_roles, settings
from ..launch.programs.program_run import ProgramRun, run_programs
from ..spec.config import FILL, ROUND_ROBIN
from ..spec.devices import LOCALHOST
from ..spec.experiment import Experiment
from ..spec.value_types import duration, whole
from ..worker.job import SERVER, WORKER
from .parser import Parser, add_settings, read_experiment
from .signals import signals_interrupt

_SETTINGS = (
    *("launcher", "hosts", "hosts_count", "gpus_per_host", "remote_dir", "remote_python", "setup", "interface"),
    *("controller_address", "ssh_config", "forward_agent", "device", "nodes", "queue", "yarn", "ray_address"),
)
_LEFT_OUT = (".git", "__pycache__", ".venv")
_MOST_BYTES = 64 * 2**20  # of a folder to copy, compressed: it is held in memory on both sides


def main(words: list[str]) -> int:
    parser = _parser()
    options = parser.read(words)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        raise InputError(f"no command to launch\n  such as: {parser.prog} -n 2 python my_training.py")
    asked = _asked(options)
    variables = _variables(options)
    timeout = _read(duration, options.limit, "--timeout") if options.limit else None
    experiment = read_experiment(options)
    if experiment.resources.launcher == SLURM and not inside_slurm(os.environ):
        such = "salloc --nodes 2 trainscale launch -n 2 …"
        raise InputError(f"launcher slurm: a program is launched inside an allocation, such as by: {such}")
    place = find_target(experiment)
    how = launcher(place.launcher, place.access)
    try:
        with signals_interrupt():
            return _launch(how, place, experiment, options, asked, variables, timeout)
    finally:
        how.close()


def own_arguments(argv: list[str]) -> list[str]:
    """Return the arguments before the program to launch."""
    try:
        options, _ = _parser().parse_known_args(argv)
    except InputError:
        return argv
    return argv[: len(argv) - len(options.command)]


def _parser() -> Parser:
    parser = Parser(
        "launch", "Run your own program on many hosts, with the variables that torch, TensorFlow, JAX and MXNet read."
    )
    parser.usage = "trainscale launch -n N [options] COMMAND …"
    add = parser.add_argument
    add("-n", "--num-workers", metavar="N", required=True, help="worker processes")
    add(
        "-s",
        "--num-servers",
        metavar="N",
        default="0",
        help="parameter servers, which run the same command (default: 0)",
    )
    add("--scheduler", action=argparse.BooleanOptionalAction, default=None,
        help="MXNet's scheduler, one more process of the same command (default: with servers)")  # fmt: skip
    add("--chief", action="store_true", help="worker 0 is the chief in TF_CONFIG; all ends when it does")
    add("--placement", choices=(FILL, ROUND_ROBIN), default=ROUND_ROBIN, dest="deal",
        help="round-robin: dealt out to the hosts, servers first; fill: one host before the next"
             " (default: round-robin)")  # fmt: skip
    add("--gpus", choices=("all", "own"), default="all",
        help="which a worker sees: all of its host, or its own share, numbered from 0 (default: all)")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME[=VALUE]",
        help="a variable for every program, with the value it has here unless one is given; may be given"
             " again")  # fmt: skip
    add("--env-worker", action="append", default=[], metavar="NAME=VALUE", help="the same for workers only")
    add("--env-server", action="append", default=[], metavar="NAME=VALUE", help="the same for servers only")
    add("--folder", metavar="DIR", help="where the programs run, on every host (default: the current directory)")
    add("--copy", "--sync-dst-dir", metavar="DIR", dest="copy",
        help="copy the current directory to DIR of every host first, and run there")  # fmt: skip
    add("--timeout", metavar="TIME", dest="limit", help="end everything after this long (default: never)")
    add("--hostfile", "--host-file", dest="hosts", action="append", help=argparse.SUPPRESS)  # as dmlc's had it
    add_settings(parser, _SETTINGS)
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    return parser


def _asked(options: Namespace) -> ProgramRequest:
    servers = _read(whole(0).parse, options.num_servers, "--num-servers")
    return ProgramRequest(
        workers=_read(whole(1).parse, options.num_workers, "--num-workers"),
        servers=servers,
        scheduler=servers > 0 if options.scheduler is None else options.scheduler,
        placement=options.deal,
        own_gpus=options.gpus == "own",
        chief=options.chief,
    )


def _read(parse: Any, text: str, flag: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from None


def _variables(options: Namespace) -> dict[str, dict[str, str]]:
    """By role; those for all under the empty name."""
    return {
        "": dict(_pair("--env", text, os.environ) for given in options.env for text in _names(given)),
        WORKER: dict(_pair("--env-worker", text) for text in options.env_worker),
        SERVER: dict(_pair("--env-server", text) for text in options.env_server),
    }


def _names(text: str) -> list[str]:
    """Names without values may come in one list, with commas."""
    return [text] if "=" in text else [name.strip() for name in text.split(",") if name.strip()]


def _pair(flag: str, text: str, here: Mapping[str, str] | None = None) -> tuple[str, str]:
    separator = "=" if "=" in text or here is not None else ":"  # of MXNet's launcher
    name, found, value = text.partition(separator)
    if name and found:
        return name, value
    if here is None or not name:
        raise InputError(f"{flag}: {text!r}; valid: NAME=VALUE")
    if name not in here:
        raise InputError(f"{flag}: {name} is not set here; valid: a variable that is, or NAME=VALUE")
    return name, here[name]


def _launch(
    how: Launcher,
    place: Target,
    experiment: Experiment,
    options: Namespace,
    asked: ProgramRequest,
    variables: Mapping[str, dict[str, str]],
    timeout: float | None,
) -> int:
    folder = _there(options.copy, "~") if options.copy else _there(options.folder or "", str(Path.cwd()))
    hosts = (Host(LOCALHOST),) if place.local else how.hosts()
    found = _survey(how, hosts, folder, _pack(Path.cwd()) if options.copy else None)
    limit = experiment.resources.gpus_per_host
    programs = assign_roles(asked, [replace(one, slots=limit or one.slots) for one in found])

    def jobs(ports: Mapping[str, list[int]]) -> list[dict[str, Any]]:
        return [
            {
                **setting.to_dict(),
                "environment": {**setting.environment, **variables[""], **variables.get(program.role, {})},
                "command": options.command,
                "folder": folder,
            }
            for program, setting in zip(programs, settings(asked, programs, ports), strict=True)
        ]

    return run_programs(how, ProgramRun(programs, _show, _tell, asked.chief), jobs, timeout)


def _there(folder: str, base: str) -> str:
    """A path that means the same from wherever a keeper begins."""
    return folder if folder.startswith("~") else str(Path(base, folder))


def _survey(how: Launcher, hosts: Sequence[Host], folder: str, archive: str | None) -> list[UsableHost]:
    """What the hosts have, once all of them have the folder."""
    questions = [
        Question("look", {"folder": how.access.remote_dir}),
        Question("program", {"prepare": folder, "archive": archive}),
    ]
    answers = ask(how, {host.name: questions for host in hosts})
    broken = [str(error) for error in causes(one for one in answers.values() if isinstance(one, HostError))]
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}
    for name, both in good.items():
        broken += [f"{name}: {one['tail'].strip() or 'does not answer'}" for one in both if one["kind"] == "exit"]
    if broken:
        raise TrainscaleError("\n".join(broken))
    wrong = [f"{name}: folder {folder} {both[1]['problem']}" for name, both in good.items() if both[1]["problem"]]
    if wrong:
        hint = "name one that every host has by --folder, or copy this one by --copy DIR"
        raise InputError("\n".join([*wrong, f"  {hint}"]))
    return [usable_host(host, good[host.name][0], how.access) for host in hosts]


def _pack(folder: Path) -> str:
    """The folder as text that fits into one line."""

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(entry.name).name in _LEFT_OUT else entry

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=wanted)
            if raw.tell() > _MOST_BYTES:
                raise InputError(
                    f"copy: {folder} is larger than {_MOST_BYTES // 2**20} MiB, compressed; keep data elsewhere,"
                    " or share the folder and name it by --folder"
                )
    return base64.b64encode(raw.getvalue()).decode()


def _show(program: Program, text: str, error: bool) -> None:
    print(f"[{program.label}] {text}", file=sys.stderr if error else sys.stdout, flush=True)


def _tell(text: str) -> None:
    print(f"trainscale: {text}", file=sys.stderr, flush=True)
