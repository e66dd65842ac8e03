"""What was seen in one trial: raw samples of every rank, never statistics. One record is one line of the journal.

Schema history
    1  first version; samples were called ``images``
    2  ``samples`` and ``valid_samples``, and ``unit``: what the network calls a sample
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, asdict, dataclass, field, fields, make_dataclass
from typing import Any, get_type_hints

from ..errors import InputError
from ..spec.config import Config, Trial
from ..worker.compiled_programs import COLD, NONE, WARM
from ..worker.type_aliases import JsonObject
from .decoding import DecodingError, check_schema, convert, decode_object, without_nones
from .witness import RankWitness, SeenByRank, WitnessVerdict

SCHEMA = 2
IMAGES = "images"  # the unit of all networks for pictures

OK = "ok"
# Why a trial has no result. The order is that of docs/results.md.
OUT_OF_MEMORY, CRASH, TIMEOUT, HANG, LOST, REFUSED = "oom", "crash", "timeout", "hang", "lost", "refused"
SKIPPED = "skipped"  # a search did not try it, because by an estimate it does not fit
MISSING = "missing"  # the framework is not available here; the same command tries again


@dataclass(frozen=True)
class Failure:
    """Why a trial ended without a result. ``tail`` holds the last log lines of the rank that failed first."""

    kind: str
    message: str
    rank: int | None = None
    tail: tuple[str, ...] = ()
    host: str = ""  # of that rank, or the one that was lost; empty on a single host and where none is to blame


@dataclass(frozen=True)
class ExchangeTime:
    """How long gradients of one size took to exchange, after the window: ``seconds`` for all ``count`` exchanges."""

    bytes: int
    count: int
    seconds: float


@dataclass(frozen=True)
class BatchTime:
    """How long ``steps`` steps took with another batch, after the window."""

    batch: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class GpuState:
    """What a rank's GPU did in its window, by NVIDIA's driver: in MHz, watts, degrees Celsius and bytes per second.

    None is what the GPU does not tell. ``limited_share`` is the share of the samples in which something limited its
    clocks, ``limited_by`` the share of each reason.
    """

    samples: int
    sm_mhz_mean: float | None = None
    sm_mhz_min: int | None = None
    sm_mhz_limit: int | None = None  # the highest clock that the GPU has
    memory_mhz_mean: float | None = None
    memory_mhz_min: int | None = None
    memory_mhz_limit: int | None = None
    watts_mean: float | None = None
    watts_limit: float | None = None
    celsius_max: int | None = None
    limited_share: float = 0.0
    limited_by: dict[str, float] = field(default_factory=dict)
    pcie_sent_per_second: float | None = None
    pcie_received_per_second: float | None = None
    nvlink_sent_per_second: float | None = None
    nvlink_received_per_second: float | None = None


@dataclass(frozen=True)
class RankSample:
    """What one worker measured in its window. All times are in seconds, all memory is in bytes."""

    rank: int
    host: str
    samples: int
    window_seconds: float
    step_seconds: tuple[float, ...]
    startup_seconds: float = 0.0
    first_step_seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    weights_digest: str | None = None
    device_peak_bytes: int | None = None  # as the framework's allocator counts
    nvml_peak_bytes: int | None = None  # as the driver counts, for this rank's own processes
    nvml_note: str = ""  # why the driver's count is missing on a GPU
    host_peak_bytes: int | None = None
    loaders_peak_bytes: int | None = None  # sum over the processes that prepare this rank's samples
    cpu_seconds: float | None = None
    involuntary_switches: int | None = None
    waited_seconds: float | None = None  # part of the window in which no samples were ready
    core_wait_seconds: float | None = None  # part of the window in which threads were ready to run but had no core
    resident_steps: int = 0  # steps after the window, on one batch that stayed on the device
    resident_seconds: float = 0.0
    exchanges: tuple[ExchangeTime, ...] = ()  # with --explain: exchanges alone, by size
    further_batches: tuple[BatchTime, ...] = ()  # with --explain, on one device
    energy_joules: float | None = None  # in the window; None where nothing counts it
    energy_source: str = ""  # nvml: of this rank's GPU; rapl: of the processors of its host
    gpu: GpuState | None = None  # None on CPUs, in older journals, and where no sample was taken in the window
    compilation: str = ""  # cold: it compiled programs; warm: a cache had all; none: it needed none; empty: unknown
    witness: RankWitness | None = None


@dataclass(frozen=True)
class Epoch:
    """One epoch of training to an accuracy, over all ranks. ``seconds`` and ``samples`` count the training steps only,
    without validation and without the first step of the trial.
    """

    epoch: int  # from 1
    seconds: float
    samples: int
    train_loss: float | None
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float
    valid_samples: int
    waited_seconds: float = 0.0
    evaluation_seconds: float = 0.0


@dataclass(frozen=True)
class ServerSample:
    """What one parameter server reported. Frameworks report different parts of it."""

    updates: int | None = None
    bytes: int | None = None  # of the weights that it holds
    staleness_mean: float | None = None  # updates between a worker's read and its write
    staleness_max: int | None = None


@dataclass(frozen=True)
class MachineLoad:
    """What the hosts of a trial did besides it; the values are those of the busiest host."""

    other_cores: float | None = None  # cores that other programs used
    cpu_pressure: float | None = None  # share of the time in which a process waited for a core
    memory_limit_bytes: int | None = None  # set on the processes while a batch size is searched


# What proves a trial while it runs, and would make its line many times longer.
_NOT_JOURNALED = ("sketches", "closing_sketches", "samples_seen")


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
    servers: tuple[ServerSample, ...] = ()
    failure: Failure | None = None
    versions: dict[str, str] = field(default_factory=dict)
    allocator: dict[str, str] = field(default_factory=dict)  # variables of the C allocator, as rank 0 has them
    parameters: int | None = None
    machine: MachineLoad = MachineLoad()
    notes: tuple[str, ...] = ()
    unit: str = IMAGES
    witness: WitnessVerdict | None = None  # None in journals of versions that had no witness
    # How the first steps changed single tensors of the last worker. The journal does not hold it.
    sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # The gradients by which its closing steps updated single tensors. The journal does not hold them either.
    closing_sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    samples_seen: tuple[SeenByRank, ...] = ()  # of a trial with real data; nor does it hold these

    @property
    def ok(self) -> bool:
        return self.status == OK

    @property
    def compilation(self) -> str:
        """``cold`` if a rank compiled a program, ``warm`` if a cache had all of them, ``none`` if there were none.
        Empty in older journals.
        """
        states = {rank.compilation for rank in self.ranks}
        return next((state for state in (COLD, WARM, NONE) if state in states), "")

    def to_dict(self) -> JsonObject:
        values = asdict(self)
        for name in ("trial", *_NOT_JOURNALED):
            values.pop(name)
        return {
            "schema": SCHEMA,
            "key": self.trial.key,
            "config": self.trial.config.to_dict(),
            "devices": self.trial.devices,
            "repeat": self.trial.repeat,
            **({"short": True} if self.trial.short else {}),
            **values,
            "servers": [without_nones(server) for server in self.servers],
            "machine": without_nones(self.machine),
        }

    @classmethod
    def from_dict(cls, values: JsonObject) -> TrialRecord:
        """Raises DecodingError if a value is missing or has the wrong type."""
        if values.get("schema") == 1:
            values = _from_schema_1(values)
        trial = convert(values, Trial)
        config = trial.config
        counts = {"devices": trial.devices, "config.batch": config.batch, "config.classes": config.classes}
        for name, count in counts.items():
            if count < 1:
                raise DecodingError(f"{name}: Expected a number from 1, got {count}")
        return convert({**values, "trial": trial}, cls)


class DamagedLine(InputError):
    """A line of the journal cannot be read."""


def decode_record(line: str | bytes, where: str) -> TrialRecord:
    """Decode one line of the journal. A DamagedLine says ``where`` (file and line) it cannot be read and why."""
    record = decode_quickly(line)
    if record is not None:
        return record
    try:
        values = decode_object(line)
        check_schema(values, SCHEMA, where)
        return TrialRecord.from_dict(values)
    except DecodingError as error:
        raise DamagedLine(f"{where}: this line is damaged: {error}") from None


_decoder: Any = None
_EQUAL_DIGITS, _LONG_NUMBER = bytes.maketrans(b"123456789", b"000000000"), b"0" * 26
_configs: dict[Config, Config] = {}  # most records of a journal have one of few configs


def decode_quickly(line: str | bytes) -> TrialRecord | None:
    """Decode a line in one step, many times faster than by way of a dictionary. Return None for a line that has another
    schema or is damaged, for which ``decode_record`` takes the other way.
    """
    import msgspec

    global _decoder
    if _decoder is None:
        _decoder = msgspec.json.Decoder(_make_line_type())
    data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
    if _LONG_NUMBER in data.translate(_EQUAL_DIGITS):
        return None  # a whole number that no statistics can use, perhaps
    try:
        decoded = _decoder.decode(data)
    except (ValueError, RecursionError):
        return None
    config = decoded.config
    if decoded.schema != SCHEMA or min(decoded.devices, config.batch, config.classes) < 1:
        return None
    trial = Trial(_configs.setdefault(config, config), decoded.devices, decoded.repeat, decoded.short)
    # The constructor of a frozen dataclass would take as long as the decoding.
    record = object.__new__(TrialRecord)
    vars(record).update({name: getattr(decoded, name) for name in _JOURNALED}, trial=trial, samples_seen=())
    vars(record).update(sketches={}, closing_sketches={})
    return record


_JOURNALED = tuple(f.name for f in fields(TrialRecord) if f.name not in ("trial", *_NOT_JOURNALED))


def _make_line_type() -> type:
    """Return a dataclass with the fields of a line: those of a record, with those of its trial beside them."""
    types, fields_by_name = get_type_hints(TrialRecord), {f.name: f for f in fields(TrialRecord)}
    of_trial = [("schema", int), ("config", Config), ("devices", int), ("repeat", int)]
    of_record = [(name, types[name], _same_default(fields_by_name[name])) for name in _JOURNALED]
    return make_dataclass("Line", [*of_trial, ("short", bool, False), *of_record])


def _same_default(original: Field[Any]) -> Any:
    if original.default_factory is not NO_DEFAULT:
        return field(default_factory=original.default_factory, kw_only=True)
    return field(default=original.default, kw_only=True) if original.default is not NO_DEFAULT else field(kw_only=True)


def _from_schema_1(values: JsonObject) -> JsonObject:
    new_names = {"images": "samples", "valid_images": "valid_samples"}

    def renamed(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        return [
            {new_names.get(name, name): value for name, value in item.items()} if isinstance(item, dict) else item
            for item in items
        ]

    return {**values, **{name: renamed(values[name]) for name in ("ranks", "epochs") if name in values}}
