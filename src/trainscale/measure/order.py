"""Decides which trial comes next: the next of a fixed list, the one that a time budget is best spent on, or the next of
a search (search.py).

Everything here is pure: it looks at the plan and at the records so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from ..analyse.estimates import make_estimate
from ..analyse.statistics import mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured, list_step_seconds
from ..record.trial import HANG, OUT_OF_MEMORY, TIMEOUT, TrialRecord
from ..spec.config import PointKey, Trial
from ..spec.plan import FIRST_WINDOW_STEPS, LEAST_ROUNDS, Plan
from ..worker.job import Measure
from .allocation import Repeated, choose_point
from .search import choose_short_trial, make_short_measure, plan_winners, replay_races_of_plan
from .windows import StepCounts, TrialTimes, choose_counts

_GOOD_ENOUGH = 0.01  # half the interval over the mean
_OVERHEAD_GUESS = 8.0  # seconds of a trial besides its steps, until a trial has been measured
_LEAST_WINDOW = 1.0  # seconds
_MOST_FAILURES = 2


@dataclass(frozen=True)
class NextTrial:
    trial: Trial
    measure: Measure


def choose_next_trial(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the trial to run now, or None when the run is complete."""
    measurement = plan.experiment.measurement
    if measurement.budget is not None:
        return _choose_by_budget(plan, records, measurement.budget) or _choose_first_open(
            plan, list_further_trials(plan), records
        )
    if measurement.until_interval is not None:
        return _choose_until_narrow(plan, records) or _choose_first_open(plan, list_further_trials(plan), records)
    if measurement.search:
        short = choose_short_trial(plan, records)
        if short:
            return NextTrial(short, make_short_measure(measurement))
        plan = plan_winners(plan, replay_races_of_plan(plan, records))
        records = [record for record in records if not record.trial.short]
    return _choose_first_open(plan, plan.list_trials(), records)


def _choose_first_open(plan: Plan, trials: Iterable[Trial], records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the first of these trials that is not recorded and may succeed."""
    measurement = plan.experiment.measurement
    recorded = {record.trial.key for record in records}
    hopeless = find_hopeless_points(records)
    trial = next((t for t in trials if t.key not in recorded and t.point not in hopeless), None)
    if trial is None:
        return None
    measures = {further.point: further.measure for further in plan.further_points}
    return NextTrial(trial, measures.get(trial.point, Measure(measurement.warmup, measurement.steps)))


def list_further_trials(plan: Plan) -> list[Trial]:
    """Return all trials beside the ladder. After a budget is spent, they come last."""
    most = max((further.repeats for further in plan.further_points), default=0)
    return [trial for repeat in range(most) for trial in plan.list_further_trials(repeat)]


def find_hopeless_points(records: Sequence[TrialRecord]) -> set[PointKey]:
    """Return the points that are not worth another trial.

    A point that ran out of memory or time will do so again. Any other failure may happen once, but not twice.
    """
    failures = Counter(record.trial.point for record in records if not record.ok)
    certain = {record.trial.point for record in records if record.status in (OUT_OF_MEMORY, TIMEOUT, HANG)}
    return certain | {point for point, number in failures.items() if number >= _MOST_FAILURES}


def _choose_by_budget(plan: Plan, records: Sequence[TrialRecord], budget: float) -> NextTrial | None:
    hopeless = find_hopeless_points(records)
    points = [point for point in plan.points if point not in hopeless]
    if not points:
        return None
    further = {further.point for further in plan.further_points}
    seconds_left = budget - sum(record.seconds for record in records if record.trial.point not in further)
    repeats = Counter(record.trial.point for record in records)
    trial = _choose_most_useful_trial(plan, points, repeats, records)
    if trial is None:
        return None
    overhead = _estimate_overhead_seconds(trial.point, records)
    share = budget / (len(plan.points) * LEAST_ROUNDS)
    window = max(_LEAST_WINDOW, min(share, seconds_left) - overhead)
    # Every point is measured once, even past the budget. Further trials begin only if they can end within it.
    if repeats[trial.point] and seconds_left < overhead + _LEAST_WINDOW:
        return None
    counts = _choose_step_counts(plan, trial, records) or _read_most_counts(plan)
    return NextTrial(trial, Measure(counts.warmup, counts.steps, window))


def _choose_until_narrow(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the next trial until all intervals are narrow enough.

    Until windows can be chosen, one takes no longer than what its trial costs besides it.
    """
    hopeless = find_hopeless_points(records)
    points = [point for point in plan.points if point not in hopeless]
    repeats = Counter(record.trial.point for record in records)
    trial = _choose_most_useful_trial(plan, points, repeats, records) if points else None
    if trial is None:
        return None
    counts = _choose_step_counts(plan, trial, records)
    if counts is not None:
        return NextTrial(trial, Measure(counts.warmup, counts.steps))
    most, seconds = _read_most_counts(plan), max(_LEAST_WINDOW, _estimate_overhead_seconds(trial.point, records))
    return NextTrial(trial, Measure(most.warmup, most.steps, seconds, FIRST_WINDOW_STEPS))


def _read_most_counts(plan: Plan) -> StepCounts:
    return StepCounts(plan.experiment.measurement.warmup, plan.experiment.measurement.steps)


def _choose_step_counts(plan: Plan, trial: Trial, records: Sequence[TrialRecord]) -> StepCounts | None:
    """Return the numbers of steps by which the trial narrows its interval for the least time, once they are known."""
    times: dict[int, list[TrialTimes]] = {}  # by number of devices
    for record in records:
        if record.trial.config == trial.config and is_measured(record):
            window = max(rank.window_seconds for rank in record.ranks)
            own = TrialTimes(record.seconds, window, list_step_seconds(record)[: record.steps])
            times.setdefault(record.trial.devices, []).append(own)
    return choose_counts(times.get(trial.devices, []), times.values(), _read_most_counts(plan))


def _choose_most_useful_trial(
    plan: Plan, points: list[PointKey], repeats: Counter[PointKey], records: Sequence[TrialRecord]
) -> Trial | None:
    """Return the next trial. Every point is measured four times, in interleaved rounds; then the point with the widest
    interval is repeated, or with --until-interval the point on which device time is spent best.

    The width is that of the interval in the report, with the factor that makes up for stopping when it looks narrow.
    """
    fewest = min(repeats[point] for point in points)
    if fewest < LEAST_ROUNDS:
        in_round = [trial.point for trial in plan.list_round(fewest) if trial.point in points]
        point = next(point for point in in_round if repeats[point] == fewest)
        return _make_next_repeat(point, records)
    target = plan.experiment.measurement.until_interval
    if target is not None:
        all_devices_wait = plan.experiment.measurement.budget is not None
        chosen = choose_point(_summarise_repeats(points, records, all_devices_wait), target)
        return _make_next_repeat(chosen, records) if chosen else None
    widths = {point: _compute_interval_width(point, records) for point in points}
    point = max(points, key=lambda candidate: widths[candidate])
    return _make_next_repeat(point, records) if widths[point] > _GOOD_ENOUGH else None


def _summarise_repeats(
    points: list[PointKey], records: Sequence[TrialRecord], all_devices_wait: bool
) -> dict[PointKey, Repeated]:
    """Return what is known about the points: their speeds and what a trial costs, in device-seconds.

    ``all_devices_wait``: the time is limited, so a trial on few devices costs as much as one on all.
    """
    repeated = {}
    for config, devices in points:
        good = [record for record in records if record.trial.point == (config, devices) and is_measured(record)]
        speeds = [compute_samples_per_second(record) for record in good]
        if speeds:
            speed = make_estimate(mean_interval(speeds, sequential=True), len(speeds), is_sequential=True)
            cost = (1 if all_devices_wait else devices) * fmean(record.seconds for record in good)
            repeated[config, devices] = Repeated(speed, max(cost, _LEAST_WINDOW), (config, 1) if devices > 1 else None)
    return repeated


def _make_next_repeat(point: PointKey, records: Sequence[TrialRecord]) -> Trial:
    """Return the first repeat of the point without a record. --retry-failed leaves gaps, so records are not counted."""
    used = {record.trial.repeat for record in records if record.trial.point == point}
    return Trial(*point, repeat=next(number for number in count() if number not in used))


def _compute_interval_width(point: PointKey, records: Sequence[TrialRecord]) -> float:
    of_point = [record for record in records if record.trial.point == point]
    speeds = [compute_samples_per_second(record) for record in of_point if is_measured(record)]
    if len(speeds) < LEAST_ROUNDS:
        return float("inf")
    relative = mean_interval(speeds, sequential=True).relative
    return float("inf") if relative is None else relative


def _estimate_overhead_seconds(point: PointKey, records: Sequence[TrialRecord]) -> float:
    """Return the seconds besides its steps that the last trial of this point took, or else the last of any point."""
    good = [record for record in records if record.ok]
    same_point = [record for record in good if record.trial.point == point]
    last = next(reversed(same_point or good), None)
    if last is None:
        return _OVERHEAD_GUESS
    window = max(rank.window_seconds for rank in last.ranks)
    return max(0.0, last.seconds - window * (1 + last.warmup / max(1, last.steps)))
