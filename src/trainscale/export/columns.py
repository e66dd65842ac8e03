"""The tidy table: a row for each trial. A column is declared with its type, unit and meaning, and how to get its value.

Columns that points have too take unit and meaning from report/columns.py. Files, frames and docs/export.md are made
from this list. All speeds and times are computed by analyse/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, get_args, get_type_hints

from ..analyse.series import Learning, Point, Series, summarise_learning, summarise_memory
from ..analyse.throughput import (
    compute_energy_per_sample,
    compute_input_overhead,
    compute_samples_per_second,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_step_seconds,
    median_over,
)
from ..record.decoding import find_first_line
from ..record.run import Provenance, RecordedMachine, RunInfo
from ..record.trial import LOST, OK, GpuState, TrialRecord
from ..report.columns import COLUMN


@dataclass(frozen=True)
class RowSource:
    """What a row is made from: a trial, its point and series, and its run."""

    run_name: str
    provenance: Provenance
    record: TrialRecord
    series: Series
    point: Point

    @cached_property
    def good(self) -> bool:
        return is_measured(self.record)

    @cached_property
    def speed(self) -> float:
        return compute_samples_per_second(self.record)

    @cached_property
    def learning(self) -> Learning | None:
        return summarise_learning([self.record])

    @cached_property
    def memory(self) -> Mapping[str, Any]:
        return summarise_memory([self.record])

    @cached_property
    def gpus(self) -> list[GpuState]:
        return [rank.gpu for rank in self.record.ranks if rank.gpu]

    @cached_property
    def machine(self) -> RecordedMachine:
        """The machine of rank 0. Host names are not in the table, because tables are passed on."""
        host = self.record.ranks[0].host if self.record.ranks else ""
        return (self.provenance.hosts or {}).get(host) or self.provenance.machine or RecordedMachine()


Get = Callable[[RowSource], Any]


def _column(get: Get, meaning: str, unit: str = "") -> Any:
    """Declare a column of trials alone. The name of the field is its name; a value that does not exist is None."""
    return field(metadata={"meaning": meaning, "unit": unit, "get": get})


def _shared(name: str, get: Get) -> Any:
    """Declare a column that points have too, under the same name."""
    return field(metadata={"meaning": COLUMN[name].meaning, "unit": COLUMN[name].unit, "get": get})


def _config(name: str) -> Any:
    return _shared(name, lambda source: getattr(source.record.trial.config, name))


def _measured(name: str, get: Get) -> Any:
    """Declare a shared column that a trial without a result does not have."""
    return _shared(name, lambda source: get(source) if source.good else None)


def _memory(name: str) -> Any:
    return _shared(name, lambda source: source.memory[name])


@dataclass(frozen=True)
class TableColumn:
    """``kind`` is str, int, float or bool. An optional column may have no value in a row."""

    name: str
    kind: type
    unit: str
    meaning: str
    is_optional: bool
    get: Get


def _find_status(source: RowSource) -> str:
    failure = source.record.failure
    return OK if source.good else failure.kind if failure else LOST


def _add_watts(source: RowSource) -> float | None:
    """Return the power of the GPUs of all ranks, or None where one is not known."""
    watts = [gpu.watts_mean for gpu in source.gpus if gpu.watts_mean is not None]
    return sum(watts) if watts and len(watts) == len(source.record.ranks) else None


def _join_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial, good or failed: one config on one device count, once, in fresh processes."""

    run: str = _column(lambda source: source.run_name, "name of the run's directory")
    trial: str = _column(lambda source: source.record.trial.key, "key of the trial, unique within the run")
    series: str = _shared("series", lambda source: source.series.title)
    started: str = _column(lambda source: source.record.started, "when the trial began, UTC")
    status: str = _shared("status", lambda source: _find_status(source))
    reason: str | None = _column(
        lambda source: find_first_line(source.record.failure.message) if source.record.failure else None,
        "the first line of the failure's message",
    )
    flags: str = _column(
        lambda source: "; ".join(source.point.flags) if source.good else "",
        "what the checks of its point found, joined by semicolons",
    )

    framework: str = _config("framework")
    model: str = _config("model")
    strategy: str = _config("strategy")
    servers: int = _config("servers")
    server_placement: str = _config("server_placement")
    servers_per_host: int = _config("servers_per_host")
    scaling: str = _config("scaling")
    batch_per_device: int = _shared(
        "batch_per_device", lambda source: source.record.trial.config.batch_per_device(source.record.trial.devices)
    )
    global_batch: int = _shared(
        "global_batch", lambda source: source.record.trial.config.global_batch(source.record.trial.devices)
    )
    precision: str = _config("precision")
    layout: str = _config("layout")
    compile: bool = _config("compile")
    data: str = _config("data")
    augment: bool = _config("augment")
    loaders: int = _config("loaders")
    image_size: int = _config("image_size")
    channels: int = _config("channels")
    classes: int = _config("classes")
    device: str = _config("device")
    cores_per_device: int = _config("cores_per_device")
    ranks_per_gpu: int = _config("ranks_per_gpu")
    placement: str = _config("placement")
    deterministic: bool = _config("deterministic")
    allocator: str = _config("allocator")
    epochs: int = _config("epochs")
    until_accuracy: float | None = _config("until_accuracy")
    learning_rate: float = _config("learning_rate")
    momentum: float = _config("momentum")
    weight_decay: float = _config("weight_decay")
    schedule: str = _config("schedule")
    warmup_epochs: float = _config("warmup_epochs")

    devices: int = _shared("devices", lambda source: source.record.trial.devices)
    hosts: int = _shared("hosts", lambda source: source.record.hosts)
    repeat: int = _column(lambda source: source.record.trial.repeat, "number of the repeat, from 0")
    short: bool = _column(lambda source: source.record.trial.short, "whether it is a short trial of a search")
    warmup: int = _column(lambda source: source.record.warmup, "steps before the window")
    steps: int = _column(lambda source: source.record.steps, "steps in the window")
    unit: str = _shared("unit", lambda source: source.record.unit)
    samples: int | None = _column(
        lambda source: sum(rank.samples for rank in source.record.ranks) if source.good else None,
        "samples that all ranks trained on in the window",
        "samples",
    )
    parameters: int | None = _shared("parameters", lambda source: source.record.parameters)

    compilation: str | None = _shared("compilation", lambda source: source.record.compilation or None)

    seconds: float = _column(
        lambda source: source.record.seconds, "the whole trial, from the start of its processes to their end", "s"
    )
    window_seconds: float | None = _column(
        lambda source: max(rank.window_seconds for rank in source.record.ranks) if source.good else None,
        "the longest window of a rank",
        "s",
    )
    step_seconds: float | None = _measured("step_seconds", lambda source: median_over(list_step_seconds(source.record)))
    startup_seconds: float | None = _measured(
        "startup_seconds", lambda source: max(rank.startup_seconds for rank in source.record.ranks)
    )
    first_step_seconds: float | None = _measured(
        "first_step_seconds", lambda source: max(rank.first_step_seconds for rank in source.record.ranks)
    )
    training_seconds: float | None = _measured(
        "training_seconds", lambda source: source.learning.training_seconds.mean if source.learning else None
    )

    samples_per_second: float | None = _measured("samples_per_second", lambda source: source.speed)
    samples_per_second_per_device: float | None = _measured(
        "samples_per_second_per_device", lambda source: source.speed / source.record.trial.devices
    )
    jitter: float | None = _measured("jitter", lambda source: compute_step_jitter(source.record))
    input_overhead: float | None = _measured("input_overhead", lambda source: compute_input_overhead(source.record))
    waiting_share: float | None = _measured("waiting_share", lambda source: compute_waiting_share(source.record))
    energy_joules_per_sample: float | None = _column(
        lambda source: compute_energy_per_sample(source.record) if source.good else None,
        "energy of a sample, of all GPUs or of all processors",
        "J",
    )
    train_accuracy: float | None = _measured(
        "train_accuracy", lambda source: source.learning.train_accuracy.mean if source.learning else None
    )
    valid_accuracy: float | None = _measured(
        "valid_accuracy", lambda source: source.learning.valid_accuracy.mean if source.learning else None
    )

    device_peak_bytes: int | None = _memory("device_peak_bytes")
    device_peak_bytes_sum: int | None = _memory("device_peak_bytes_sum")
    nvml_peak_bytes: int | None = _memory("nvml_peak_bytes")
    nvml_peak_bytes_sum: int | None = _memory("nvml_peak_bytes_sum")
    host_peak_bytes: int | None = _memory("host_peak_bytes")
    host_peak_bytes_sum: int | None = _memory("host_peak_bytes_sum")
    loaders_peak_bytes: int | None = _memory("loaders_peak_bytes")

    gpu_watts: float | None = _column(
        lambda source: _add_watts(source), "mean power of the GPUs in the window, sum over ranks", "W"
    )
    gpu_celsius_max: int | None = _column(
        lambda source: max((gpu.celsius_max for gpu in source.gpus if gpu.celsius_max is not None), default=None),
        "highest temperature of a GPU in the window",
        "°C",
    )
    gpu_limited_share: float | None = _column(
        lambda source: max((gpu.limited_share for gpu in source.gpus), default=None),
        "part of the window in which a GPU's clock was limited, largest",
        "share",
    )

    parity: str | None = _shared("parity", lambda source: source.series.parity)
    witness: str | None = _column(
        lambda source: source.record.witness.state if source.record.witness else None, "whether the trial did its work"
    )
    other_cores: float | None = _column(
        lambda source: source.record.machine.other_cores, "cores that other programs used during the trial", "cores"
    )
    cpu_pressure: float | None = _column(
        lambda source: source.record.machine.cpu_pressure,
        "part of the trial in which a process waited for a core",
        "share",
    )

    cpu: str | None = _column(lambda source: source.machine.cpu, "processor of the machine")
    cores: int | None = _column(lambda source: source.machine.cores, "cores of the machine")
    memory_gib: float | None = _column(lambda source: source.machine.memory_gib, "memory of the machine", "GiB")
    gpus: int | None = _column(lambda source: len(source.machine.gpus), "GPUs of the machine")
    gpu: str | None = _column(
        lambda source: source.machine.gpus[0] if source.machine.gpus else None, "name of its first GPU"
    )
    gpu_driver: str | None = _column(lambda source: source.machine.gpu_driver, "version of the GPUs' driver")
    system: str | None = _column(lambda source: source.machine.system, "operating system")
    framework_version: str | None = _shared(
        "framework_version", lambda source: next(iter(source.record.versions.values()), None)
    )
    versions: str = _column(
        lambda source: _join_versions(source.record.versions), "all versions that rank 0 reported, name and version"
    )
    trainscale_version: str | None = _column(lambda source: source.provenance.trainscale, "version of trainscale")
    trainscale_commit: str | None = _column(
        lambda source: source.provenance.commit, "commit of trainscale, if it ran from a checkout"
    )
    run_date: str | None = _column(lambda source: source.provenance.date, "when the run began, UTC")
    command: str | None = _column(lambda source: source.provenance.command, "command that began the run")


def _collect_columns() -> tuple[TableColumn, ...]:
    hints = get_type_hints(TrialRow)
    declared = []
    for item in fields(TrialRow):
        kinds = [kind for kind in get_args(hints[item.name]) or (hints[item.name],) if kind is not type(None)]
        optional = len(get_args(hints[item.name])) > 1
        unit, meaning, get = (item.metadata[name] for name in ("unit", "meaning", "get"))
        declared.append(TableColumn(item.name, kinds[0], unit, meaning, optional, get))
    return tuple(declared)


COLUMNS = _collect_columns()


def make_rows(
    name: str, info: RunInfo, records: Iterable[TrialRecord], all_series: Iterable[Series]
) -> Iterator[TrialRow]:
    """Yield a row for each trial of a run, in the order of the journal."""
    by_config = {series.config: series for series in all_series}
    points = {point.key: point for series in by_config.values() for point in series.points}
    provenance = info.read_provenance()
    for record in records:
        source = RowSource(name, provenance, record, by_config[record.trial.config], points[record.trial.point])
        yield TrialRow(**{column.name: column.get(source) for column in COLUMNS})
