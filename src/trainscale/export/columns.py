"""The tidy table: a row for each trial. Files, frames and docs/export.md are made from ``TrialRow``.

Fields without a meaning are columns of report/columns.py, of a point that has this trial alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args, get_type_hints

from ..analyse.series import Interval, Series, column, make_point, summarise_memory
from ..analyse.throughput import compute_energy_per_sample, list_speeds
from ..record.decoding import find_first_line
from ..record.run import RecordedMachine, RunInfo
from ..record.trial import TrialRecord
from ..report.columns import COLUMN
from ..report.documents import pick


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial, good or failed: one config on one device count, once, in fresh processes."""

    run: str = column("name of the run's directory")
    trial: str = column("key of the trial, unique within the run")
    series: str
    started: str = column("when the trial began, UTC")
    status: str
    reason: str | None = column("the first line of the failure's message")
    flags: str = column("what the checks of its point found, joined by semicolons")

    framework: str
    model: str
    strategy: str
    servers: int
    server_placement: str
    servers_per_host: int
    scaling: str
    batch_per_device: int
    global_batch: int
    precision: str
    layout: str
    compile: bool
    data: str
    augment: bool
    loaders: int
    image_size: int
    channels: int
    classes: int
    device: str
    cores_per_device: int
    ranks_per_gpu: int
    placement: str
    deterministic: bool
    allocator: str
    epochs: int
    until_accuracy: float | None
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    warmup_epochs: float

    devices: int
    hosts: int
    repeat: int = column("number of the repeat, from 0")
    short: bool = column("whether it is a short trial of a search")
    warmup: int = column("steps before the window")
    steps: int = column("steps in the window")
    unit: str
    samples: int | None = column("samples that all ranks trained on in the window", "samples")
    parameters: int | None
    compilation: str | None

    seconds: float = column("the whole trial, from the start of its processes to their end", "s")
    window_seconds: float | None = column("the longest window of a rank", "s")
    step_seconds: float | None
    startup_seconds: float | None
    first_step_seconds: float | None
    training_seconds: float | None

    samples_per_second: float | None
    samples_per_second_per_device: float | None
    jitter: float | None
    input_overhead: float | None
    waiting_share: float | None
    energy_joules_per_sample: float | None = column("energy of a sample, of all GPUs or of all processors", "J")
    train_accuracy: float | None
    valid_accuracy: float | None

    device_peak_bytes: int | None
    device_peak_bytes_sum: int | None
    nvml_peak_bytes: int | None
    nvml_peak_bytes_sum: int | None
    host_peak_bytes: int | None
    host_peak_bytes_sum: int | None
    loaders_peak_bytes: int | None

    gpu_watts: float | None = column("mean power of the GPUs in the window, sum over ranks", "W")
    gpu_celsius_max: int | None = column("highest temperature of a GPU in the window", "°C")
    gpu_limited_share: float | None = column("part of the window in which a GPU's clock was limited, largest", "share")

    parity: str | None
    witness: str | None = column("whether the trial did its work")
    other_cores: float | None = column("cores that other programs used during the trial", "cores")
    cpu_pressure: float | None = column("part of the trial in which a process waited for a core", "share")

    cpu: str | None = column("processor of the machine")
    cores: int | None = column("cores of the machine")
    memory_gib: float | None = column("memory of the machine", "GiB")
    gpus: int | None = column("GPUs of the machine")
    gpu: str | None = column("name of its first GPU")
    gpu_driver: str | None = column("version of the GPUs' driver")
    system: str | None = column("operating system")
    framework_version: str | None
    versions: str = column("all versions that rank 0 reported, name and version")
    trainscale_version: str | None = column("version of trainscale")
    trainscale_commit: str | None = column("commit of trainscale, if it ran from a checkout")
    run_date: str | None = column("when the run began, UTC")
    command: str | None = column("command that began the run")


@dataclass(frozen=True)
class TableColumn:
    """``kind`` is str, int, float or bool. An optional column may have no value in a row."""

    name: str
    kind: type
    unit: str
    meaning: str
    is_optional: bool


def _make_column(name: str, declared: Any, metadata: Any) -> TableColumn:
    kinds = get_args(declared) or (declared,)
    unit, meaning = metadata.get("unit"), metadata.get("meaning")
    if meaning is None:
        unit, meaning = COLUMN[name].unit, COLUMN[name].meaning
    return TableColumn(name, kinds[0], unit, meaning, type(None) in kinds)


_HINTS = get_type_hints(TrialRow)
COLUMNS = tuple(_make_column(item.name, _HINTS[item.name], item.metadata) for item in fields(TrialRow))
_OF_POINTS = [item.name for item in fields(TrialRow) if "meaning" not in item.metadata]


def make_rows(
    name: str, info: RunInfo, records: Iterable[TrialRecord], all_series: Iterable[Series]
) -> Iterator[TrialRow]:
    """Yield a row for each trial of a run, in the order of the journal."""
    by_config = {series.config: series for series in all_series}
    points = {point.key: point for series in by_config.values() for point in series.points}
    provenance = info.read_provenance()
    for record in records:
        series = by_config[record.trial.config]
        trial, ranks, failure = record.trial, record.ranks, record.failure
        # The machine of rank 0. Host names are not in the table, because tables are passed on.
        host = ranks[0].host if ranks else ""
        machine = (provenance.hosts or {}).get(host) or provenance.machine or RecordedMachine()
        alone, speeds = make_point([record]), list_speeds([record])
        values: dict[str, Any] = dict.fromkeys(_HINTS)  # what is not set below does not exist
        for column_name in _OF_POINTS:
            value = COLUMN[column_name].read(series, alone)
            values[column_name] = value.mean if isinstance(value, Interval) else value
        values |= pick(trial, "repeat short")
        values |= pick(record, "started warmup steps parameters seconds")
        values |= pick(record.machine, "other_cores cpu_pressure")
        values |= pick(machine, "cpu cores memory_gib gpu_driver system")
        values |= {key: value for key, value in summarise_memory([record]).items() if key in values}
        values |= {
            "run": name,
            "trial": trial.key,
            "reason": find_first_line(failure.message) if failure else None,
            "flags": "",
            "compilation": record.compilation or None,
            "witness": record.witness.state if record.witness else None,
            "framework_version": next(iter(record.versions.values()), None),
            "versions": ", ".join(f"{package} {version}" for package, version in record.versions.items()),
            "trainscale_version": provenance.trainscale,
            "trainscale_commit": provenance.commit,
            "run_date": provenance.date,
            "command": provenance.command,
            "gpus": len(machine.gpus),
            "gpu": machine.gpus[0] if machine.gpus else None,
        }
        if speeds:
            values |= {
                "flags": "; ".join(points[trial.point].flags),
                "samples": sum(rank.samples for rank in ranks),
                "window_seconds": max(rank.window_seconds for rank in ranks),
                "samples_per_second_per_device": speeds[0] / trial.devices,
                "energy_joules_per_sample": compute_energy_per_sample(record),
            }
        gpus = [rank.gpu for rank in ranks if rank.gpu]
        if gpus:
            watts = [gpu.watts_mean for gpu in gpus if gpu.watts_mean is not None]
            values["gpu_watts"] = sum(watts) if watts and len(watts) == len(ranks) else None
            degrees = [gpu.celsius_max for gpu in gpus if gpu.celsius_max is not None]
            values["gpu_celsius_max"] = max(degrees, default=None)
            values["gpu_limited_share"] = max(gpu.limited_share for gpu in gpus)
        yield TrialRow(**values)
