"""``trainscale check``: this machine, as trainscale would use it now."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from ..cluster.devices import default_cores_per_device, describe, devices
from ..cluster.machine import Machine, look
from ..launch.placement import free_ports, loopback_interface
from ..launch.probe import probe
from ..worker.frameworks.catalog import FRAMEWORKS
from .parser import Parser
from .words import gib

_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core while nothing of ours runs


def main(words: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    Parser("check", "Look at this machine: devices, cores, memory, frameworks, free ports, load.").read(words)
    machine = look()
    console = Console(highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _machine_rows(machine):
        table.add_row(name, value)
    found = {name: probe(sys.executable, name, [], []) for name in FRAMEWORKS}
    for name, facts in found.items():
        table.add_row(name, _framework_words(facts))
    console.print(table)
    return 0 if any(facts["found"] for facts in found.values()) else 1


def _machine_rows(machine: Machine) -> list[tuple[str, str]]:
    shared = f", {machine.threads_per_core} threads share a core" if machine.threads_per_core > 1 else ""
    slots = devices(machine, "cpu", default_cores_per_device(machine), 1)
    rows = [
        ("processor", f"{machine.cpu}, {len(machine.cores)} usable cores{shared}"),
        ("CPU devices", describe(machine, slots)),
        ("memory", f"{gib(machine.memory_bytes)}, {gib(machine.memory_available_bytes)} free"),
    ]
    for gpu in machine.gpus:
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {gib(gpu.memory_bytes)}, driver {gpu.driver}"))
    if not machine.gpus:
        rows.append(("GPUs", f"none ({machine.gpu_note})"))
    rows.append(("disk here", f"{gib(shutil.disk_usage(Path.cwd()).free)} free"))
    rows.append(("ports", _ports_words()))
    rows.append(("load", _load_words(machine)))
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


def _framework_words(facts: dict[str, Any]) -> str:
    if not facts["found"]:
        get = f"; get it with: {facts['get']}" if facts.get("get") else ""
        return f"missing: {facts['reason']}{get}"
    seen = f", sees {len(facts['gpus'])} GPU{'s' if len(facts['gpus']) != 1 else ''}" if facts["gpus"] else ", CPU only"
    rest = ", ".join(f"{name} {version}" for name, version in list(facts["versions"].items())[1:])
    return f"{facts['version']}{seen} ({rest}), at {facts['python_path']}"
