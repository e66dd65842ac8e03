"""What was seen in one trial: raw samples of every rank. One record is one line of the journal.

Schema history
    1  first version; samples were called ``images``
    2  ``samples`` and ``valid_samples``, and ``unit``: what the network calls a sample
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import InputError
from ..spec.config import STRONG, WEAK, Config, Trial
from ..worker.events import Epoch, ServerResult
from ..worker.sample import COLD, NONE, WARM, BatchTime, ExchangeTime, GpuState, RankSample, SeenByRank
from ..worker.type_aliases import JsonObject
from .decoding import DecodingError, check_schema, convert, decode_object, leave_out_nones
from .parity import WitnessVerdict

__all__ = [
    "BatchTime", "Epoch", "ExchangeTime", "Failure", "GpuState", "MachineLoad", "RankSample", "ServerResult",
    "TrialRecord",
]  # fmt: skip

SCHEMA = 2
_configs: dict[str, Config] = {}  # by their text; a journal has few, and each computes its key once
IMAGES = "images"  # the unit of all networks for pictures

OK = "ok"
# Why a trial has no result. The order is that of docs/results.md.
OUT_OF_MEMORY, CRASH, TIMEOUT, HANG, LOST, REFUSED = "oom", "crash", "timeout", "hang", "lost", "refused"
MOST = 1 << 40  # of devices, samples and classes in a journal
SKIPPED = "skipped"  # a search did not try it, because by an estimate it does not fit
MISSING = "missing"  # the framework is not available here; the same command tries again


@dataclass(frozen=True)
class Failure:
    """Why a trial ended without a result."""

    kind: str
    message: str
    rank: int | None = None  # that failed first
    tail: tuple[str, ...] = ()  # its last log lines
    host: str = ""  # of that rank, or the one that was lost; empty on a single host


@dataclass(frozen=True)
class MachineLoad:
    """What else ran on the busiest host of a trial."""

    other_cores: float | None = None  # cores that other programs used
    cpu_pressure: float | None = None  # share of the time in which a process waited for a core
    memory_limit_bytes: int | None = None  # set on the processes while a batch size is searched


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial, good or failed."""

    trial: Trial
    status: str
    started: str
    seconds: float
    hosts: int = 1
    warmup: int = 0
    steps: int = 0
    ranks: tuple[RankSample, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    servers: tuple[ServerResult, ...] = ()
    failure: Failure | None = None
    versions: dict[str, str] = field(default_factory=dict)
    allocator: dict[str, str] = field(default_factory=dict)  # variables of the C allocator, as rank 0 has them
    parameters: int | None = None
    machine: MachineLoad = MachineLoad()
    notes: tuple[str, ...] = ()
    unit: str = IMAGES
    witness: WitnessVerdict | None = None  # None in journals of versions that had no witness
    # Not in the journal, which would be many times longer: how the first steps changed the last worker's
    # tensors, the gradients of its closing steps, and the samples of a trial with real data.
    sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    closing_sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    samples_seen: tuple[SeenByRank, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == OK

    @property
    def compilation(self) -> str:
        """``cold`` if a rank compiled a program, ``warm`` if a cache had all, ``none`` without programs."""
        states = {rank.compilation for rank in self.ranks}
        return next((state for state in (COLD, WARM, NONE) if state in states), "")

    def to_dict(self) -> JsonObject:
        values = asdict(self)
        for name in ("trial", "sketches", "closing_sketches", "samples_seen"):
            values.pop(name)
        return {
            "schema": SCHEMA,
            "key": self.trial.key,
            "config": self.trial.config.to_dict(),
            "devices": self.trial.devices,
            "repeat": self.trial.repeat,
            **({"short": True} if self.trial.short else {}),
            **values,
            "servers": [leave_out_nones(server) for server in self.servers],
            "machine": leave_out_nones(self.machine),
        }

    @classmethod
    def from_dict(cls, values: JsonObject) -> TrialRecord:
        if values.get("schema") == 1:
            values = _convert_schema_1(values)
        text = repr(values.get("config"))
        trial = convert({**values, "config": _configs[text]} if text in _configs else values, Trial)
        config = _configs[text] = trial.config
        counts = {"devices": trial.devices, "config.batch": config.batch, "config.classes": config.classes}
        for name, count in counts.items():
            if not 1 <= count <= MOST:
                raise DecodingError(f"{name}: Expected a number from 1 to {MOST}, got {count}")
        if config.scaling not in (WEAK, STRONG):
            raise DecodingError(f"config.scaling: Expected {WEAK} or {STRONG}, got {config.scaling!r:.40}")
        if config.batch_per_device(trial.devices) < 1:
            most = config.batch
            raise DecodingError(f"devices: Expected at most the global batch of {most}, got {trial.devices}")
        return convert({**values, "trial": trial}, cls)


class DamagedLine(InputError):
    """A line of the journal cannot be read."""


def decode_record(line: str | bytes, where: str) -> TrialRecord:
    """Decode a line of the journal. ``where`` is for the message."""
    try:
        values = decode_object(line)
        check_schema(values, SCHEMA, where)
        return TrialRecord.from_dict(values)
    except DecodingError as error:
        raise DamagedLine(f"{where}: this line is damaged: {error}") from None


def _convert_schema_1(values: JsonObject) -> JsonObject:
    new_names = {"images": "samples", "valid_images": "valid_samples"}

    def rename(item: Any) -> Any:
        return {new_names.get(key, key): item[key] for key in item} if isinstance(item, dict) else item

    lists = {name: values[name] for name in ("ranks", "epochs") if isinstance(values.get(name), list)}
    return {**values, **{name: [rename(item) for item in items] for name, items in lists.items()}}
