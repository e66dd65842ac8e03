"""run.json: what a run is, and where, when and with what it is measured. It is written once."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from ..spec.groups import MOST_REPEATS
from ..worker.config import ALLOCATORS, TUNED, select_allocator_variables
from ..worker.data.facts import DatasetFacts
from ..worker.events import FrameworkFacts
from ..worker.inspection.host import HostFacts, Machine
from ..worker.type_aliases import JsonObject
from .decoding import DecodingError, convert
from .trial import SCHEMA

_DATASET_FIELDS = ("name", "classes", "channels", "image_size", "train", "valid")


@dataclass(frozen=True)
class RecordedMachine:
    """What a run recorded about a machine. Older versions recorded less."""

    host: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None
    system: str | None = None


@dataclass(frozen=True)
class RecordedDataset:
    name: str | None = None
    classes: int | None = None
    train: int | None = None
    valid: int | None = None


@dataclass(frozen=True)
class Provenance:
    """The part of a run's provenance that is read again."""

    date: str | None = None
    command: str | None = None
    trainscale: str | None = None  # the version
    commit: str | None = None
    machine: RecordedMachine | None = None
    hosts: dict[str, RecordedMachine] | None = None
    data: RecordedDataset | None = None
    frameworks: dict[str, dict[str, str]] | None = None  # versions by name
    allocator: dict[str, str] | None = None  # the setting, and variables by name

    @property
    def machines(self) -> tuple[RecordedMachine, ...]:
        """The hosts of the run; without them the machine that ran the command."""
        return tuple((self.hosts or {}).values()) or ((self.machine,) if self.machine else ())


@dataclass(frozen=True)
class RecordedSpec:
    """The part of a run's specification that is read again."""

    series: tuple[JsonObject, ...] = ()  # configs, each with its ladder
    warmup: int | None = None
    steps: int | None = None
    repeats: int | None = None
    budget: float | None = None
    until_interval: float | None = None
    search: JsonObject | None = None
    hosts: tuple[int, ...] = ()  # how many devices each has
    interface: str | None = None


@dataclass(frozen=True)
class RunInfo:
    """``spec`` decides whether a command continues this run; ``provenance`` is shown as it is."""

    spec: JsonObject
    provenance: JsonObject = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def is_sequential(self) -> bool:
        """Whether the results decided how often each point was repeated."""
        spec = self.read_spec()
        return spec.budget is not None or spec.until_interval is not None

    @property
    def is_search(self) -> bool:
        return self.read_spec().search is not None

    def to_dict(self) -> JsonObject:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: JsonObject) -> RunInfo:
        """Raise DecodingError for a value that is missing or wrong."""
        run = convert(values, cls)
        repeats = run.read_spec().repeats
        if repeats is not None and not 1 <= repeats <= MOST_REPEATS:
            raise DecodingError(f"repeats: Expected a number from 1 to {MOST_REPEATS}, got {repeats}")
        provenance = run.read_provenance()
        try:
            shlex.split(provenance.command or "")
        except ValueError as error:
            raise DecodingError(f"provenance.command: {error}") from None
        try:
            datetime.fromisoformat(provenance.date or "2026-01-01")
        except ValueError:
            raise DecodingError(f"provenance.date: Expected a date, got {provenance.date!r:.40}") from None
        return run

    def read_spec(self) -> RecordedSpec:
        return convert(self.spec, RecordedSpec)

    def read_provenance(self) -> Provenance:
        return convert(_replace_keys(self.provenance), Provenance)


def _replace_keys(value: Any) -> Any:
    """Replace the keys that cannot be names of fields."""
    if not isinstance(value, dict):
        return value
    names = {"memory GiB": "memory_gib", "gpu driver": "gpu_driver"}
    return {names.get(key, key): _replace_keys(item) for key, item in value.items()}


# ---- collecting


def collect_provenance(
    arguments: list[str],
    machine: Machine,
    frameworks: Mapping[str, FrameworkFacts],
    hosts: Mapping[str, HostFacts] | None = None,
    dataset: DatasetFacts | None = None,
    allocator: str = TUNED,
) -> JsonObject:
    """Without ``hosts``, only ``machine`` is measured."""
    commit = None  # of trainscale itself, if it runs from a checkout
    describe = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=False)
        commit = done.stdout.strip()
    # Those of other hosts are not known before their ranks report them.
    own_variables = {} if hosts else select_allocator_variables(os.environ)
    described_hosts = {name: _describe_machine(facts.machine) for name, facts in (hosts or {}).items()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["trainscale", *arguments]),
        "trainscale": __version__,
        "commit": commit or None,
        "machine": {**_describe_machine(machine), "system": f"{platform.system()} {platform.release()}"},
        **({"hosts": described_hosts} if hosts else {}),
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
