"""Follows a batch job live from where it was submitted: its place in the queue by Slurm's word, its trials as they
arrive in the journal. Only looks; the job needs nobody who follows it.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...record.batches import read_batches
from ...record.journal import RUN, TRIALS, Journal, read_run, read_trials
from ...record.run import RunInfo
from ...record.trial import MISSING, TrialRecord
from ...run.batches import resolved
from ...run.measure import RunListener, without
from ...run.order import NextTrial, next_trial
from ...spec.config import Config
from ...spec.plan import Plan
from ..live import live
from .queue import JobStatus, SlurmJob, Unreachable, status_of

_LOOK_SECONDS = 0.5  # between looks at the journal
_ASK_SECONDS = (1.0, 5.0)  # between questions to Slurm: fast while things change, slow while they do not


class Followed:
    """A run as its directory shows it. ``like`` is a plan of the same experiment, for what the journal does not say."""

    def __init__(self, directory: Path, like: Plan, retry_failed: bool) -> None:
        self.directory = directory
        self._like = like
        self._size = 0
        self.records: list[TrialRecord] = []
        self._again: set[str] = set()  # failed trials that are not yet tried again
        self.look()
        if retry_failed:
            self._again = {record.trial.key for record in self.records if not record.ok}

    @property
    def begun(self) -> bool:
        """Listed, not asked for: a shared file system may remember for a minute that there was no such file."""
        try:
            return RUN in os.listdir(self.directory)  # noqa: PTH208
        except OSError:
            return False

    @property
    def has_news(self) -> bool:
        return self.begun and self._size_now() != self._size

    def look(self) -> list[TrialRecord]:
        """Trials that have been finished since the last look."""
        size = self._size_now()
        if size == self._size:
            return []
        before = {record.trial.key: record for record in self.records}
        self.records, self._size = read_trials(self.directory), size
        fresh = [record for record in self.records if before.get(record.trial.key) != record]
        self._again -= {record.trial.key for record in fresh}
        return fresh

    def _size_now(self) -> int:
        """Opened, because that asks a shared file system anew."""
        try:
            with (self.directory / TRIALS).open("rb") as file:
                return os.fstat(file.fileno()).st_size
        except OSError:
            return 0

    @property
    def plan(self) -> Plan:
        """The one that is being measured, without the frameworks that are not there."""
        missing = {record.trial.config.framework for record in self.records if record.status == MISSING}
        plan = without(plan_of(read_run(self.directory), self._like), missing)
        return resolved(plan, read_batches(self.directory))

    def next_trial(self) -> NextTrial | None:
        """What the job measures now: it goes by the same records."""
        return next_trial(self.plan, [record for record in self.records if record.trial.key not in self._again])

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.begun and self.next_trial() is None

    @property
    def all_measured(self) -> bool:
        """Whether every trial has a record, also one of those that were to be tried again."""
        self.look()
        return self.begun and next_trial(self.plan, self.records) is None


def plan_of(run: RunInfo, like: Plan) -> Plan:
    """The plan that a run was begun with, by its specification."""
    series = run.spec["series"]
    experiment = like.experiment.with_values(
        warmup=run.spec["warmup"],
        steps=run.spec["steps"],
        budget=run.spec.get("budget"),
        repeats=run.spec.get("repeats", like.experiment.measurement.repeats),
    )
    return replace(
        like,
        experiment=experiment,
        configs=tuple(Config.from_dict(one) for one in series),
        ladders=tuple(tuple(one["ladder"]) for one in series),
    )


def follow(job: SlurmJob, run: Followed) -> JobStatus:
    """How the job ended. KeyboardInterrupt passes through, and the job goes on."""
    questions = _Questions(job)
    with ExitStack() as stack:
        view: _View | None = None
        while not (status := questions.status()).over:
            if status.waits:  # maybe again
                stack.close()
                view = None
            elif view is None and status.runs and run.begun:
                view = _View(job, run, stack)
            if view is not None:
                view.update()
            time.sleep(_LOOK_SECONDS)
        if view is None and run.has_news:  # it was short
            view = _View(job, run, stack)
        if view is not None:
            view.update()
    return status


class _View:
    """What a local run shows, of a run that goes on elsewhere."""

    def __init__(self, job: SlurmJob, run: Followed, stack: ExitStack) -> None:
        self._run = run
        # Not for writing: the journal is the job's.
        self._journal = Journal(run.directory, read_run(run.directory), -1, run.records)
        if run.records:
            print(f"continuing: {len(run.records)} trials are in the journal", flush=True)
        self._listener: RunListener = stack.enter_context(live(run.plan, self._journal, elsewhere=f"job {job.number}"))
        self._step: NextTrial | None = None

    def update(self) -> None:
        fresh = self._run.look()
        self._journal.records = self._run.records
        for record in fresh:
            self._listener.trial_ends(record)
        step = self._run.next_trial() if fresh or self._step is None else self._step
        if step is not None and step != self._step:
            self._listener.trial_begins(step)
        self._step = step


class _Questions:
    """Asks Slurm, not too often, and says what has changed."""

    def __init__(self, job: SlurmJob) -> None:
        self._job = job
        self._status = JobStatus("PENDING")
        self._said: object = None
        self._pause = 0.0
        self._next = 0.0
        self._silent = False

    def status(self) -> JobStatus:
        if time.monotonic() < self._next:
            return self._status
        try:
            self._status = status_of(self._job)
            self._silent = False
        except Unreachable as error:
            if not self._silent:
                print(f"{error}; the job does not mind, trying again", flush=True)
            self._silent = True
        self._announce()
        self._next = time.monotonic() + self._pause
        return self._status

    def _announce(self) -> None:
        status, number = self._status, self._job.number
        least, most = _ASK_SECONDS
        if (status.state, status.reason, status.nodes) == self._said:
            self._pause = min(most, self._pause * 1.5)
            return
        self._said, self._pause = (status.state, status.reason, status.nodes), least
        if status.over or self._silent:
            return
        if status.runs:
            print(f"job {number} runs on {status.nodes}", flush=True)
        elif status.waits:
            reason = f": {status.reason}" if status.reason else ""
            start = f"; expected to start {status.start.replace('T', ' ')}" if status.start else ""
            print(f"job {number} waits{reason}{start}", flush=True)
        else:
            print(f"job {number}: {status.state.lower().replace('_', ' ')}", flush=True)
