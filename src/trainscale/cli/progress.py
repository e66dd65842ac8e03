"""What has been measured of a run, what goes on now, and what is left: the state behind every display of a run.

Each display derives from ``RunProgress``: lines and events in views.py, the table of a terminal in live.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from ..analyse.checks import OTHER_CORES
from ..analyse.race import count_most_rounds
from ..analyse.statistics import Interval, mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..analyse.titles import make_strategy_labels
from ..launch.trial.state import TrialState
from ..measure.measure import RunListener
from ..measure.order import NextTrial, find_hopeless_points, replay_races_of_plan
from ..record.decoding import find_first_line, remove_unprintable
from ..record.journal import Journal
from ..record.parity import UNPROVEN
from ..record.trial import SKIPPED, Epoch, TrialRecord
from ..report.search_table import describe_departure
from ..spec.config import Config, PointKey
from ..spec.plan import LEAST_ROUNDS, Plan


class RunProgress(RunListener):
    """``remote_job`` names the job that measures the run, if that is not this process."""

    def __init__(self, plan: Plan, journal: Journal, remote_job: str = "") -> None:
        self.plan = plan
        self.journal = journal
        self.remote_job = remote_job
        self.current: NextTrial | None = None
        self.phase = ""
        self.step = 0  # within the phase
        self.epochs: Sequence[Epoch] = ()  # of the current trial
        self.warnings: list[str] = []  # of all trials that ended since the display began, each once
        self.new_warnings: list[str] = []  # of the last trial
        self.began = time.monotonic()
        # Read once: the facts of a folder of photographs are counted on the disk, and the table is drawn often.
        self.facts = plan.dataset.facts if plan.dataset.is_real else None
        further = {point.point: plan.estimate_seconds(*point.point, point.measure) for point in plan.further_points}
        self._estimates = {**{point: plan.estimate_seconds(*point) for point in plan.points}, **further}

        # What distinguishes the configs of a network: the strategy, and the batch if it has several.
        networks = {config.model for config in plan.configs}
        has_batches = len({(config.model, config.batch) for config in plan.configs}) > len(networks)
        strategies = make_strategy_labels(plan.configs)
        self.labels = {c: f"{label} b{c.batch}" if has_batches else label for c, label in strategies.items()}

    # ---- the events of a run

    def trial_begins(self, trial: NextTrial) -> None:
        self.current, self.phase, self.step = trial, "under way" if self.remote_job else "start", 0
        self.epochs = ()

    def expectation_begins(self, line: str) -> None:
        self.phase = "reference"

    def trial_moves(self, state: TrialState) -> None:
        self.phase, self.step = state.slowest_worker.phase, state.slowest_worker.step
        self.epochs = tuple(state.epochs)

    def trial_ends(self, record: TrialRecord) -> None:
        """Note what a person may want to act on now: a failure, a busy machine, unproven work, notes."""
        self.current = None
        warnings = []
        if not record.ok and record.status != SKIPPED:
            reason = find_first_line(record.failure.message) if record.failure else ""
            warnings.append(f"{record.trial.label}: {record.status}: {reason}".removesuffix(": "))
        cores = record.machine.other_cores or 0.0
        if record.ok and cores > OTHER_CORES:
            warnings.append(f"other programs used {cores:.1f} cores during {record.trial.label}")
        if record.ok and record.witness and record.witness.state == UNPROVEN:
            warnings.append(f"it is not proven that the trials did their work: {record.witness.reason}")
        warnings += map(remove_unprintable, record.notes)
        self.new_warnings = [text for text in warnings if text not in self.warnings]
        self.warnings += self.new_warnings

    # ---- what has been measured

    def select_records(self, config: Config, devices: int) -> list[TrialRecord]:
        return [record for record in self.journal.records if record.trial.point == (config, devices)]

    def compute_speed(self, records: Sequence[TrialRecord]) -> Interval | None:
        """Return the samples per second of the cluster over trials of a point; None if none has a result."""
        speeds = [compute_samples_per_second(record) for record in records if is_measured(record)]
        return mean_interval(speeds, self.plan.experiment.measurement.is_sequential) if speeds else None

    @property
    def is_search(self) -> bool:
        return self.plan.experiment.measurement.search is not None

    def find_departures(self) -> dict[PointKey, str]:
        """Return the points that left a search so far, and why. Empty if the run is no search."""
        races = replay_races_of_plan(self.plan, self.journal.records) if self.is_search else []
        return {
            (departure.key, race.devices): describe_departure(departure)
            for race in races
            for departure in race.state.departures
        }

    # ---- what is left

    @property
    def planned_trials(self) -> int | None:
        """The number of trials on the ladders. None where the results decide it."""
        measurement = self.plan.experiment.measurement
        if measurement.is_sequential or self.is_search:
            return None
        return measurement.repeats * len(self.plan.points)

    @property
    def finished_trials(self) -> int:
        """The number of recorded trials; those beside the ladders count only where no number is planned."""
        points = set(self.plan.points)
        trials = [record.trial for record in self.journal.records]
        return len(trials if self.planned_trials is None else [trial for trial in trials if trial.point in points])

    @property
    def trials(self) -> str:
        """``12 of 40 trials``, or ``12 trials`` where the results decide how many there will be."""
        done, planned = self.finished_trials, self.planned_trials
        return f"{done} trial{'' if done == 1 else 's'}" if planned is None else f"{done} of {planned} trials"

    def estimate_remaining_seconds(self) -> float:
        """Estimate the time to go from what each point has taken so far, otherwise from the plan."""
        if self.is_search:
            return self._estimate_search_seconds()
        measurement = self.plan.experiment.measurement
        further = {point.point: point.repeats for point in self.plan.further_points}
        least = measurement.repeats if measurement.until_interval is None else LEAST_ROUNDS
        repeats = {**dict.fromkeys(self.plan.points, least), **further}
        total = 0.0
        if measurement.budget is not None:
            ladder = [record.seconds for record in self.journal.records if record.trial.point not in further]
            repeats, total = further, max(0.0, measurement.budget - sum(ladder))
        hopeless = find_hopeless_points(self.journal.records)
        for point, count in repeats.items():
            records = self.select_records(*point)
            missing = 0 if point in hopeless else max(0, count - len(records))
            total += missing * (fmean(record.seconds for record in records) if records else self._estimates[point])
        return total

    def _estimate_search_seconds(self) -> float:
        """Return an upper limit: the time to go if no further candidate leaves."""
        records, repeats = self.journal.records, self.plan.experiment.measurement.repeats
        good = [record.seconds for record in records if record.ok]
        rounds, total = count_most_rounds(repeats), 0.0
        done = Counter(record.trial.point for record in records if record.trial.short)
        for race in replay_races_of_plan(self.plan, records):
            points = [(config, race.devices) for config in race.state.running]
            seconds = fmean(good) if good else max(map(self._estimates.__getitem__, points), default=0.0)
            if race.state.waiting:
                total += seconds * sum(max(0, rounds - done[point]) for point in points)
            total += seconds * repeats
        return max(0.0, total - sum(record.seconds for record in records if not record.trial.short))
