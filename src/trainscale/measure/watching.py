"""Watches a run that another process measures, by its journal and the lock on it. It only reads.

What the run measures now follows from its plan and its records, as it does for the run itself. The plan is made from
run.json alone, because the machine that measures may be another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import InputError
from ..record.journal import RUN, Journal, is_being_measured, read_run
from ..record.run import RecordedDataset, RecordedSpec, RunInfo
from ..record.trial import TrialRecord
from ..spec.config import AUTO, Config
from ..spec.data import SYNTHETIC_DATASET, Dataset
from ..spec.devices import AvailableDevices, HostDevices
from ..spec.experiment import Experiment
from ..spec.plan import Plan
from ..spec.settings import SettingValues
from ..spec.value_types import SEARCH_LISTS
from ..worker.data.facts import PHOTOGRAPHS, SYNTHETIC, DatasetFacts
from ..worker.job import Device
from .measure import RunListener
from .order import NextTrial
from .submission.follow import FollowedRun

_POLL_SECONDS = 0.5

ShowTrials = Callable[[Plan, Journal], AbstractContextManager[RunListener]]


class JournalSource(Protocol):
    """Where the journal of a watched run is. ``directory`` holds run.json and trials.jsonl, or a copy of them."""

    @property
    def directory(self) -> Path: ...

    def is_measured(self) -> bool:
        """Return whether a process measures there now. Raises TrainscaleError if that can no longer be known."""


@dataclass(frozen=True)
class LocalJournal:
    directory: Path

    def is_measured(self) -> bool:
        return is_being_measured(self.directory)


@dataclass(frozen=True)
class WatchedEnd:
    """How the watched run was left: complete, or stopped before all its trials were measured."""

    run: RunInfo
    records: tuple[TrialRecord, ...]
    is_complete: bool


def watch_run(source: JournalSource, show_trials: ShowTrials, waits: bool = False) -> WatchedEnd:
    """Show the trials of a run until no process measures it.

    ``waits``: go on until the run is complete, for a run that is not measured all the time, or on a host whose locks
    are not seen here.
    """
    run = read_run(source.directory)
    watched = FollowedRun(source.directory, make_plan_of_run(run), retry_failed=False)
    _wait_for_batches(source, watched)
    # Without a descriptor, because only the run itself writes to its journal.
    journal = Journal(source.directory, run, -1, watched.records)
    with show_trials(watched.plan, journal) as listener:
        current: NextTrial | None = None
        while True:
            is_measured = source.is_measured()  # before the records: what is written until the lock is free is read
            new = watched.read_new_records()
            journal.records = watched.records
            for record in new:
                listener.trial_ends(record)
            step = watched.find_next_trial()
            if step is not None and step != current and is_measured:
                listener.trial_begins(step)
                current = step
            if not is_measured and (step is None or not waits):
                return WatchedEnd(run, tuple(watched.records), step is None)
            time.sleep(_POLL_SECONDS)


def _wait_for_batches(source: JournalSource, watched: FollowedRun) -> None:
    """Wait while the run still searches the largest batches that fit: before that, its points are not known."""
    while any(config.batch == AUTO for config in watched.plan.configs) and source.is_measured():
        time.sleep(_POLL_SECONDS)


# ---- the plan of a run, from run.json


def make_plan_of_run(run: RunInfo) -> Plan:
    """Return the plan of a recorded run. What --explain adds beside the ladders is not recorded, so it is left out."""
    try:
        spec = run.read_spec()
        configs = tuple(Config.from_dict(values) for values in spec.series)
        ladders = tuple(tuple(values["ladder"]) for values in spec.series)
        most = max(max(ladder) for ladder in ladders)
        values = _read_measurement(spec)
    except (KeyError, TypeError, ValueError):
        message = f"{RUN}: it does not name the series of the run with their ladders, so what is left is unknown"
        raise InputError(message) from None
    return Plan(
        Experiment.of(**values), configs, ladders, _make_devices(spec, configs[0], most), _make_dataset(run, configs[0])
    )


def _read_measurement(spec: RecordedSpec) -> SettingValues:
    """Return the settings that decide which trial comes next."""
    if spec.warmup is None or spec.steps is None:
        raise ValueError("the steps of a trial are not recorded")
    return {
        "warmup": spec.warmup,
        "steps": spec.steps,
        "budget": spec.budget,
        "until_interval": spec.until_interval,
        "search": None if spec.search is None else SEARCH_LISTS,
        **({} if spec.repeats is None else {"repeats": spec.repeats}),
    }


def _make_devices(spec: RecordedSpec, config: Config, most: int) -> AvailableDevices:
    """Return as many devices as the run had, on hosts without names. Servers that stand apart need further ones."""
    counts = spec.hosts or [2 * most + max(config.servers, 0)]
    hosts = tuple(
        HostDevices(f"host {number}", tuple(Device(config.device, index) for index in range(count)))
        for number, count in enumerate(counts, 1)
    )
    return AvailableDevices(config.device, hosts, config.cores_per_device, f"{sum(counts)} devices")


@dataclass(frozen=True)
class _RecordedData(Dataset):
    """A data set of which only what run.json says is known. Its files may be on another machine."""

    recorded: DatasetFacts

    def read_facts(self) -> DatasetFacts:
        return self.recorded


def _make_dataset(run: RunInfo, config: Config) -> Dataset:
    if config.data == SYNTHETIC:
        return SYNTHETIC_DATASET
    data = run.read_provenance().data or RecordedDataset()
    counts = (data.train or 0, data.valid or 0)
    facts = DatasetFacts(config.data, data.classes or config.classes, config.channels, 0, *counts, *PHOTOGRAPHS)
    return _RecordedData(config.data, "", facts)
