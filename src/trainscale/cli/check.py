"""``trainscale check``: this machine, as trainscale would use it now; or the hosts of a file (check_hosts.py)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster.devices import default_cores_per_device, describe_devices, list_devices
from ..errors import unknown
from ..launch import plugins
from ..launch.inspection.probe import probe
from ..launch.inspection.pythons import GIVEN, HERE, Interpreter, find_interpreter
from ..launch.launchers.catalog import LAUNCHERS, plugin_setting_keys
from ..launch.launchers.target import find_target
from ..launch.trial.placement import loopback_interface
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.machine import Machine, read_machine
from ..worker.plugins import FRAMEWORK, LAUNCHER, MODEL
from ..worker.supervision.ports import free_ports
from .parser import Parser, add_experiment, read_experiment
from .plugins import print_broken
from .wording import gib

if TYPE_CHECKING:
    from rich.console import Console

# Of all the settings of a run, those that say what to look at and how to get there.
_SETTINGS = (
    "frameworks", "device", "launcher", "python", "hosts", "hosts_count", "remote_dir", "remote_python", "setup",
    "interface", "controller_address", "ssh_config", "forward_agent",
)  # fmt: skip
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core while nothing of ours runs


def main(words: list[str]) -> int:
    from rich.console import Console

    parser = Parser(
        "check",
        "Look at this machine: devices, cores, memory, frameworks, free ports, load. With --hosts, at every host of"
        " that file, and at the network between them: what is wrong, and how to mend it.",
    )
    add_experiment(parser, (*_SETTINGS, *plugin_setting_keys()))
    options = parser.read(words)
    experiment = read_experiment(options)
    named = [name.lower() for name in experiment.work.frameworks] if options.frameworks else []
    for name in named:
        if name not in FRAMEWORKS:
            raise unknown("framework", name, FRAMEWORKS)
    console = Console(highlight=False)
    place = find_target(experiment)
    if place.local:
        return _check_machine(console, dict(experiment.resources.python or ()), named)
    from .check_hosts import check_hosts

    return check_hosts(console, place, experiment, named)


def _check_machine(console: Console, given: Mapping[str, str], named: Sequence[str]) -> int:
    from rich.table import Table
    from rich.text import Text

    with console.status("asking every framework") if console.is_terminal else nullcontext():
        machine = read_machine()  # before the frameworks make it busy
        found = ask_all(given, len(machine.cores), named)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _machine_rows(machine):
        table.add_row(name, Text(value))
    for name, (place, facts) in found.items():
        table.add_row(name, Text(_framework_words(place, facts)))
    console.print(table)
    for kind in (FRAMEWORK, MODEL, LAUNCHER):
        print_broken(console, plugins.broken_plugins(kind))
    return 0 if any(facts["found"] for _, facts in found.values()) else 1


def ask_all(
    given: Mapping[str, str], cores: int, named: Sequence[str] = ()
) -> dict[str, tuple[Interpreter, dict[str, Any]]]:
    """Where each framework was looked for, and what it said there. Each is a process that takes seconds to import."""
    places = {name: find_interpreter(name, given) for name in named or FRAMEWORKS}

    def ask(name: str) -> dict[str, Any]:
        plugin = FRAMEWORKS[name].plugin
        return probe(places[name].python, name, plugins=[plugin] if plugin else [])

    with ThreadPoolExecutor(max(2, cores)) as pool:
        return {name: (places[name], facts) for name, facts in zip(places, pool.map(ask, places), strict=True)}


def _machine_rows(machine: Machine) -> list[tuple[str, str]]:
    shared = f", {machine.threads_per_core} threads share a core" if machine.threads_per_core > 1 else ""
    slots = list_devices(machine, "cpu", default_cores_per_device(machine), 1)
    rows = [
        ("processor", f"{machine.cpu}, {len(machine.cores)} usable cores{shared}"),
        ("CPU devices", describe_devices(machine, slots)),
        ("memory", f"{gib(machine.memory_bytes)}, {gib(machine.memory_available_bytes)} free"),
    ]
    for gpu in machine.gpus:
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {gib(gpu.memory_bytes)}, driver {gpu.driver}"))
    if not machine.gpus:
        rows.append(("GPUs", f"none ({machine.gpu_note})"))
    rows.append(("disk here", f"{gib(shutil.disk_usage(Path.cwd()).free)} free"))
    rows.append(("ports", _ports_words()))
    rows.append(("load", _load_words(machine)))
    rows.append(("launchers", ", ".join(LAUNCHERS)))
    rows.append(("python", f"{sys.version.split()[0]} ({sys.executable})"))
    return rows


def _ports_words() -> str:
    interface = loopback_interface() or "none"
    try:
        first, *_ = free_ports(8)
    except OSError as error:
        return f"no free port on the loopback interface ({interface}): {error}"
    return f"free on loopback ({interface}), for example {first}"


def _load_words(machine: Machine) -> str:
    pressure = "unknown" if machine.pressure is None else f"{machine.pressure:.1f} %"
    words = f"{machine.load:.2f} runnable, {pressure} of time something waits for a core"
    if machine.pressure is not None and machine.pressure > _BUSY_PRESSURE:
        return f"{words}: busy, results will be noisy"
    return words


def _framework_words(place: Interpreter, facts: dict[str, Any]) -> str:
    """Version, device, place; or the reason that it is missing, and what to type."""
    if not facts["found"]:
        get = facts.get("get", "")
        if place.environment and not get:
            get = f"trainscale env remove {place.environment}, then env create {place.environment}"
        # In this Python it was only looked for because nothing else has it: the reason says enough.
        where = "" if place.source == HERE else f"\nlooked in: {_place_words(place)}"
        return f"missing: {facts['reason']}{where}{f'{chr(10)}get it with: {get}' if get else ''}"
    gpus = len(facts["gpus"])
    device = f"sees {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else "CPU only"
    return f"{facts['version']}, {device}, {_place_words(place)}"


def _place_words(place: Interpreter) -> str:
    return f"{place.source} ({place.python})" if place.source == GIVEN else place.source
