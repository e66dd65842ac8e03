"""The values of the tidy table, from the records of a run. All speeds and times are computed by analyse/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..analyse.cost import compute_energy_per_sample
from ..analyse.learning import summarise_learning
from ..analyse.memory import summarise_memory
from ..analyse.series import Point, Series
from ..analyse.text import find_first_line
from ..analyse.throughput import (
    compute_input_overhead,
    compute_samples_per_second,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_step_seconds,
    median_over,
)
from ..record.run import Provenance, RecordedMachine, RunInfo
from ..record.trial import LOST, OK, TrialRecord
from ..spec.config import Config
from .columns import COLUMNS, TrialRow

PartialRow = dict[str, Any]  # some columns of a TrialRow, by name

_NAMES = {column.name for column in COLUMNS}


def make_rows(
    name: str, info: RunInfo, records: Sequence[TrialRecord], all_series: Sequence[Series]
) -> Iterator[TrialRow]:
    """Yield a row for each trial of a run, in the order of the journal."""
    by_config = {series.config: series for series in all_series}
    points = {(series.config, point.devices): point for series in all_series for point in series.points}
    provenance = info.read_provenance()
    of_run: PartialRow = {
        "run": name,
        "trainscale_version": provenance.trainscale,
        "trainscale_commit": provenance.commit,
        "run_date": provenance.date,
        "command": provenance.command,
    }
    for record in records:
        yield TrialRow(
            **of_run,
            **_make_config_part(record.trial.config, record.trial.devices),
            **_make_trial_part(record, by_config[record.trial.config], points[record.trial.point]),
            **_make_window_part(record),
            **_make_gpu_part(record),
            **_make_machine_part(record, provenance),
        )


def _make_config_part(config: Config, devices: int) -> PartialRow:
    values = {name: value for name, value in asdict(config).items() if name in _NAMES}
    batches = {"batch_per_device": config.batch_per_device(devices), "global_batch": config.global_batch(devices)}
    return {**values, **batches}


def _make_trial_part(record: TrialRecord, series: Series, point: Point) -> PartialRow:
    trial, failure = record.trial, record.failure
    good = is_measured(record)
    return {
        "trial": trial.key,
        "series": series.title,
        "started": record.started,
        "status": OK if good else failure.kind if failure else LOST,
        "reason": find_first_line(failure.message) if failure else None,
        "flags": "; ".join(point.flags) if good else "",
        "devices": trial.devices,
        "hosts": record.hosts,
        "repeat": trial.repeat,
        "short": trial.short,
        "warmup": record.warmup,
        "steps": record.steps,
        "unit": record.unit,
        "parameters": record.parameters,
        "compilation": record.compilation or None,
        "seconds": record.seconds,
        "parity": series.parity,
        "witness": record.witness.state if record.witness else None,
        "other_cores": record.machine.other_cores,
        "cpu_pressure": record.machine.cpu_pressure,
        "framework_version": next(iter(record.versions.values()), None),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }


_WINDOW = (
    "samples", "window_seconds", "step_seconds", "startup_seconds", "first_step_seconds", "training_seconds",
    "samples_per_second", "samples_per_second_per_device", "jitter", "input_overhead", "waiting_share",
    "energy_joules_per_sample", "train_accuracy", "valid_accuracy",
)  # fmt: skip


def _make_window_part(record: TrialRecord) -> PartialRow:
    """Return what the ranks measured. A trial without a result has none of it."""
    sizes = {name: value for name, value in summarise_memory([record]).items() if name in _NAMES}
    if not is_measured(record):
        return {**dict.fromkeys(_WINDOW), **sizes}
    ranks, speed = record.ranks, compute_samples_per_second(record)
    learning = summarise_learning([record])
    values = (
        sum(rank.samples for rank in ranks),
        max(rank.window_seconds for rank in ranks),
        median_over(list_step_seconds(record)),
        max(rank.startup_seconds for rank in ranks),
        max(rank.first_step_seconds for rank in ranks),
        learning.training_seconds.mean if learning else None,
        speed,
        speed / record.trial.devices,
        compute_step_jitter(record),
        compute_input_overhead(record),
        compute_waiting_share(record),
        compute_energy_per_sample(record),
        learning.train_accuracy.mean if learning else None,
        learning.valid_accuracy.mean if learning else None,
    )
    return {**dict(zip(_WINDOW, values, strict=True)), **sizes}


def _make_gpu_part(record: TrialRecord) -> PartialRow:
    """Return what the ranks' GPUs did. A sum needs all ranks."""
    states = [rank.gpu for rank in record.ranks if rank.gpu]
    watts = [state.watts_mean for state in states if state.watts_mean is not None]
    return {
        "gpu_watts": sum(watts) if watts and len(watts) == len(record.ranks) else None,
        "gpu_celsius_max": max((s.celsius_max for s in states if s.celsius_max is not None), default=None),
        "gpu_limited_share": max((state.limited_share for state in states), default=None),
    }


def _make_machine_part(record: TrialRecord, provenance: Provenance) -> PartialRow:
    """Return facts of the machine of rank 0. Host names are left out, because tables are passed on."""
    host = record.ranks[0].host if record.ranks else ""
    machine = (provenance.hosts or {}).get(host) or provenance.machine or RecordedMachine()
    return {
        "cpu": machine.cpu,
        "cores": machine.cores,
        "memory_gib": machine.memory_gib,
        "gpus": len(machine.gpus),
        "gpu": machine.gpus[0] if machine.gpus else None,
        "gpu_driver": machine.gpu_driver,
        "system": machine.system,
    }
