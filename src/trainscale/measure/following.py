"""Follows a batch job from where it was submitted: its status by Slurm, its trials as they arrive in the journal.

Following only reads; the job does not depend on it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ..cluster.allocation import JobStatus
from ..record.batches import read_batches
from ..record.journal import RUN, TRIALS, Journal, read_run, read_trials
from ..record.run import RunInfo
from ..record.trial import MISSING, TrialRecord
from ..spec.config import Config
from ..spec.plan import Plan
from .batches import apply_searches
from .context import select_configs
from .measure import RunListener
from .order import NextTrial, choose_next_trial
from .submission import SlurmJob, SlurmUnreachable, read_status

_JOURNAL_SECONDS = 0.5  # between reads of the journal
_STATUS_SECONDS = (1.0, 5.0)  # between questions to Slurm: short while the status changes, long while it does not
_ARRIVAL_SECONDS = 60.0  # for a shared file system to show here what was written there


class JobListener(Protocol):
    """Receives what happens to a job that is followed."""

    def status_changes(self, status: JobStatus) -> None: ...

    def slurm_is_silent(self, error: SlurmUnreachable) -> None: ...

    def run_begins(self, run: FollowedRun, journal: Journal) -> RunListener:
        """The run has begun to measure; the result receives its trials."""

    def run_stops(self) -> None:
        """The job waits again, because Slurm requeued it."""


class FollowedRun:
    """A run as its directory shows it. ``planned`` is a plan of the same experiment, for what the journal lacks."""

    def __init__(self, directory: Path, planned: Plan, retry_failed: bool) -> None:
        self.directory = directory
        self._planned = planned
        self._size = 0
        self.records: list[TrialRecord] = []
        self._to_repeat: set[str] = set()  # failed trials that are not repeated yet
        self.read_new_records()
        if retry_failed:
            self._to_repeat = {record.trial.key for record in self.records if not record.ok}

    @property
    def has_begun(self) -> bool:
        """List the directory: a shared file system may remember for a minute that a file did not exist."""
        try:
            return RUN in os.listdir(self.directory)  # noqa: PTH208
        except OSError:
            return False

    @property
    def has_new_records(self) -> bool:
        return self.has_begun and self._read_size() != self._size

    def read_new_records(self) -> list[TrialRecord]:
        """Return the trials that were finished since the last call."""
        size = self._read_size()
        if size == self._size:
            return []
        before = {record.trial.key: record for record in self.records}
        self.records, self._size = read_trials(self.directory), size
        new = [record for record in self.records if before.get(record.trial.key) != record]
        self._to_repeat -= {record.trial.key for record in new}
        return new

    def _read_size(self) -> int:
        """Return the size of the file. It is opened, because that makes a shared file system ask its server again."""
        try:
            with (self.directory / TRIALS).open("rb") as file:
                return os.fstat(file.fileno()).st_size
        except OSError:
            return 0

    @property
    def plan(self) -> Plan:
        """The plan that the job measures, without the frameworks that are missing there."""
        missing = {record.trial.config.framework for record in self.records if record.status == MISSING}
        plan = make_recorded_plan(read_run(self.directory), self._planned)
        plan = select_configs(plan, lambda config: config.framework not in missing)
        return apply_searches(plan, read_batches(self.directory))

    def find_next_trial(self) -> NextTrial | None:
        """Return the trial that the job measures now: the job decides it by the same records."""
        return choose_next_trial(
            self.plan, [record for record in self.records if record.trial.key not in self._to_repeat]
        )

    @property
    def is_complete(self) -> bool:
        return self.has_begun and self.find_next_trial() is None

    def has_every_record(self) -> bool:
        """Return whether every trial has a record, even one that was to be repeated."""
        self.read_new_records()
        return self.has_begun and choose_next_trial(self.plan, self.records) is None

    def wait_for_records(self, status: JobStatus) -> bool:
        """Return whether every trial has a record. After a job that completed, wait for them to arrive here."""
        deadline = time.monotonic() + (_ARRIVAL_SECONDS if status.state == "COMPLETED" else 0)
        while not self.has_every_record():
            if time.monotonic() > deadline:
                return False
            time.sleep(_JOURNAL_SECONDS)
        return True


def make_recorded_plan(run: RunInfo, planned: Plan) -> Plan:
    """Return the plan that a run was begun with, by its specification."""
    spec, measurement = run.read_spec(), planned.experiment.measurement
    experiment = planned.experiment.replace_values(
        warmup=spec.warmup,
        steps=spec.steps,
        budget=spec.budget,
        until_interval=spec.until_interval,
        repeats=measurement.repeats if spec.repeats is None else spec.repeats,
    )
    return replace(
        planned,
        experiment=experiment,
        configs=tuple(Config.from_dict(values) for values in spec.series),
        ladders=tuple(tuple(values["ladder"]) for values in spec.series),
    )


def follow(job: SlurmJob, run: FollowedRun, listener: JobListener) -> JobStatus:
    """Return how the job ended. A KeyboardInterrupt passes through, and the job goes on."""
    poller = _StatusPoller(job, listener)
    trials: _TrialReporter | None = None
    while not (status := poller.poll()).is_over:
        if status.is_waiting:
            listener.run_stops()
            trials = None
        elif trials is None and status.is_running and run.has_begun:
            trials = _TrialReporter(run, listener)
        if trials is not None:
            trials.report()
        time.sleep(_JOURNAL_SECONDS)
    if trials is None and run.has_new_records:  # a short job
        trials = _TrialReporter(run, listener)
    if trials is not None:
        trials.report()
    return status


class _TrialReporter:
    """Reports the trials of a run that goes on elsewhere as those of a local run are reported."""

    def __init__(self, run: FollowedRun, listener: JobListener) -> None:
        self._run = run
        # Without a descriptor, because only the job writes to the journal.
        self._journal = Journal(run.directory, read_run(run.directory), -1, run.records)
        self._listener = listener.run_begins(run, self._journal)
        self._step: NextTrial | None = None

    def report(self) -> None:
        new = self._run.read_new_records()
        self._journal.records = self._run.records
        for record in new:
            self._listener.trial_ends(record)
        step = self._run.find_next_trial() if new or self._step is None else self._step
        if step is not None and step != self._step:
            self._listener.trial_begins(step)
        self._step = step


class _StatusPoller:
    """Asks Slurm for the status of a job, not too often, and reports changes."""

    def __init__(self, job: SlurmJob, listener: JobListener) -> None:
        self._job = job
        self._listener = listener
        self._status = JobStatus("PENDING")
        self._reported: tuple[str, str, str] | None = None
        self._pause = 0.0
        self._next = 0.0
        self._is_silent = False

    def poll(self) -> JobStatus:
        if time.monotonic() < self._next:
            return self._status
        try:
            self._status = read_status(self._job)
            self._is_silent = False
        except SlurmUnreachable as error:
            if not self._is_silent:
                self._listener.slurm_is_silent(error)
            self._is_silent = True
        self._report_change()
        self._next = time.monotonic() + self._pause
        return self._status

    def _report_change(self) -> None:
        shortest, longest = _STATUS_SECONDS
        current = (self._status.state, self._status.reason, self._status.nodes)
        if current == self._reported:
            self._pause = min(longest, self._pause * 1.5)
            return
        self._reported, self._pause = current, shortest
        if not self._status.is_over and not self._is_silent:
            self._listener.status_changes(self._status)
