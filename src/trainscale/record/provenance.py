"""Collecting where, when and with what a run is measured, for the reader of its results."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from .. import __version__
from ..worker.allocator import ALLOCATORS, TUNED, select_allocator_variables
from ..worker.data.facts import DatasetFacts
from ..worker.events import FrameworkFacts
from ..worker.inspection.host_facts import HostFacts
from ..worker.inspection.machine import Machine
from ..worker.type_aliases import JsonObject

_DATASET_FIELDS = ("name", "classes", "channels", "image_size", "train", "valid")


def collect_provenance(
    arguments: list[str],
    machine: Machine,
    frameworks: Mapping[str, FrameworkFacts],
    hosts: Mapping[str, HostFacts] | None = None,
    dataset: DatasetFacts | None = None,
    allocator: str = TUNED,
) -> JsonObject:
    """Return the document for run.json. Without ``hosts``, only ``machine`` is measured. ``dataset`` is None for
    synthetic data. ``allocator`` is the setting of that name.
    """
    # Those of other hosts are not known before their ranks report them.
    own_variables = {} if hosts else select_allocator_variables(os.environ)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["trainscale", *arguments]),
        "trainscale": __version__,
        "commit": _read_commit(),
        "machine": {**_describe_machine(machine), "system": f"{platform.system()} {platform.release()}"},
        **({"hosts": {name: _describe_machine(facts.machine) for name, facts in hosts.items()}} if hosts else {}),
        **({"data": {name: getattr(dataset, name) for name in _DATASET_FIELDS}} if dataset else {}),
        "allocator": {"setting": allocator, **ALLOCATORS[allocator], **own_variables},
        "frameworks": {name: facts.versions for name, facts in frameworks.items()},
        "load at start": {"runnable": round(machine.load, 2), "cpu pressure %": machine.pressure},
    }


def _describe_machine(machine: Machine) -> JsonObject:
    return {
        "host": machine.name,
        "cpu": machine.cpu,
        "cores": len(machine.cores),
        "threads per core": machine.threads_per_core,
        "memory GiB": round(machine.memory_bytes / 2**30, 1),
        "gpus": [gpu.name for gpu in machine.gpus],
        "gpu driver": machine.gpus[0].driver if machine.gpus else None,
    }


def _read_commit() -> str | None:
    """Return the commit of trainscale itself, if it runs from a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
