"""``trainscale check``: show this machine as a run would see it, or the hosts of a file (check_hosts.py)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster.devices import choose_cores_per_device, describe_devices, list_devices
from ..errors import explain_unknown
from ..launch import plugins
from ..launch.inspection.hosts import GIVEN, HERE, Interpreter, find_interpreter
from ..launch.launchers.target import LAUNCHERS, find_target, list_plugin_setting_keys
from ..launch.trial.jobs import find_loopback_interface
from ..report.numbers import format_gibibytes
from ..worker.events import FrameworkFacts
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import Machine, read_machine
from ..worker.inspection.probe import ProbeRequest, run_probes
from ..worker.listening import find_free_ports
from ..worker.plugins import FRAMEWORK, LAUNCHER, MODEL
from .parser import Parser, add_experiment, read_experiment
from .plugins import print_broken

if TYPE_CHECKING:
    from rich.console import Console

# The settings that say which machines to check and how to reach them.
_SETTINGS = (
    "frameworks", "device", "launcher", "python", "hosts", "hosts_count", "remote_dir", "remote_python", "setup",
    "interface", "controller_address", "ssh_config", "forward_agent", "gpus_per_host", "cores_per_device", "nodes",
    "queue", "yarn", "ray_address", "timeout",
)  # fmt: skip
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core while nothing of ours runs


def main(argv: list[str]) -> int:
    from rich.console import Console

    parser = Parser(
        "check",
        "Check this machine: devices, cores, memory, frameworks, free ports, load. With --hosts, check every host of"
        " that file and the network between them, and report what is wrong and how to fix it.",
    )
    add_experiment(parser, (*_SETTINGS, *list_plugin_setting_keys()))
    options = parser.read(argv)
    experiment = read_experiment(options)
    frameworks = [name.lower() for name in experiment.work.frameworks] if options.frameworks else []
    for name in frameworks:
        if name not in FRAMEWORKS:
            raise explain_unknown("framework", name, FRAMEWORKS)
    console = Console(highlight=False)
    target = find_target(experiment)
    if target.is_local:
        return _check_machine(console, dict(experiment.resources.python or ()), frameworks)
    from .check_hosts import check_hosts

    return check_hosts(console, target, experiment, frameworks)


def _check_machine(console: Console, given: Mapping[str, str], frameworks: Sequence[str]) -> int:
    from rich.table import Table
    from rich.text import Text

    with console.status("asking every framework") if console.is_terminal else nullcontext():
        machine = read_machine()  # before the frameworks make it busy
        answers = probe_frameworks(given, frameworks)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _describe_machine(machine):
        table.add_row(name, Text(value))
    for name, (interpreter, facts) in answers.items():
        table.add_row(name, Text(_describe_framework(interpreter, facts)))
    console.print(table)
    for kind in (FRAMEWORK, MODEL, LAUNCHER):
        print_broken(console, plugins.list_broken_plugins(kind))
    return 0 if any(facts.is_available for _, facts in answers.values()) else 1


def probe_frameworks(
    given: Mapping[str, str], frameworks: Sequence[str] = ()
) -> dict[str, tuple[Interpreter, FrameworkFacts]]:
    """Return the interpreter of each framework, and what its probe answered."""
    interpreters = {name: find_interpreter(name, given) for name in frameworks or FRAMEWORKS}
    plugins_by_name = {name: FRAMEWORKS[name].plugin for name in interpreters}
    requests = [ProbeRequest(name, plugins=[plugin] if plugin else []) for name, plugin in plugins_by_name.items()]
    facts = run_probes({name: interpreter.python for name, interpreter in interpreters.items()}, requests)
    return {name: (interpreter, facts[name]) for name, interpreter in interpreters.items()}


def _describe_machine(machine: Machine) -> list[tuple[str, str]]:
    shared = f", {machine.threads_per_core} threads share a core" if machine.threads_per_core > 1 else ""
    slots = list_devices(machine, "cpu", choose_cores_per_device(machine), 1)
    rows = [
        ("processor", f"{machine.cpu}, {len(machine.cores)} usable cores{shared}"),
        ("CPU devices", describe_devices(machine, slots)),
        (
            "memory",
            f"{format_gibibytes(machine.memory_bytes)}, {format_gibibytes(machine.memory_available_bytes)} free",
        ),
    ]
    for gpu in machine.gpus:
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {format_gibibytes(gpu.memory_bytes)}, driver {gpu.driver}"))
    if not machine.gpus:
        rows.append(("GPUs", f"none ({machine.gpu_note})"))
    rows.append(("disk here", f"{format_gibibytes(shutil.disk_usage(Path.cwd()).free)} free"))
    rows.append(("ports", _describe_ports()))
    rows.append(("load", _describe_load(machine)))
    rows.append(("launchers", ", ".join(LAUNCHERS)))
    rows.append(("python", f"{sys.version.split()[0]} ({sys.executable})"))
    return rows


def _describe_ports() -> str:
    interface = find_loopback_interface() or "none"
    try:
        first, *_ = find_free_ports(8)
    except OSError as error:
        return f"no free port on the loopback interface ({interface}): {error}"
    return f"free on loopback ({interface}), for example {first}"


def _describe_load(machine: Machine) -> str:
    pressure = "unknown" if machine.pressure is None else f"{machine.pressure:.1f} %"
    load = f"{machine.load:.2f} runnable, {pressure} of time something waits for a core"
    if machine.pressure is not None and machine.pressure > _BUSY_PRESSURE:
        return f"{load}: busy, results will be noisy"
    return load


def _describe_framework(interpreter: Interpreter, facts: FrameworkFacts) -> str:
    """Say the version, the devices and the interpreter, or why the framework is missing and how to get it."""
    if not facts.is_available:
        get = facts.install_command
        environment = interpreter.environment
        if environment and not get:
            get = f"trainscale env remove {environment}, then env create {environment}"
        # This Python is only the last resort: the reason says enough.
        where = "" if interpreter.source == HERE else f"\nlooked in: {_describe_interpreter(interpreter)}"
        return f"missing: {facts.reason}{where}{f'{chr(10)}get it with: {get}' if get else ''}"
    gpus = len(facts.gpus)
    device = f"sees {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "CPU only"
    return f"{facts.version}, {device}, {_describe_interpreter(interpreter)}"


def _describe_interpreter(interpreter: Interpreter) -> str:
    source = interpreter.source
    return f"{source} ({interpreter.python})" if source == GIVEN else source
