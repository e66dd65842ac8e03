"""Decides which trial comes next: the next of a fixed list, the one that a time budget is best spent on, or the next of
a search (search.py).

Everything here is pure: it looks at the plan and at the records so far.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean, median, variance

from ..analyse.statistics import CONFIDENCE, Estimate, make_estimate, mean_interval, ratio
from ..analyse.throughput import compute_samples_per_second, is_measured, list_step_seconds
from ..record.trial import HANG, OUT_OF_MEMORY, TIMEOUT, TrialRecord
from ..spec.config import PointKey, Trial
from ..spec.plan import FIRST_WINDOW_STEPS, LEAST_ROUNDS, Plan
from ..worker.job import Measure
from .context import make_short_measure
from .search import choose_short_trial, plan_winners, replay_races_of_plan

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
    if measurement.is_sequential:  # what is measured beside the ladder comes last, after a budget is spent
        most = max((further.repeats for further in plan.further_points), default=0)
        further = [trial for repeat in range(most) for trial in plan.list_further_trials(repeat)]
        return _choose_by_results(plan, records) or _choose_first_open(plan, further, records)
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


def find_hopeless_points(records: Sequence[TrialRecord]) -> set[PointKey]:
    """Return the points that are not worth another trial.

    A point that ran out of memory or time will do so again. Any other failure may happen once, but not twice.
    """
    failures = Counter(record.trial.point for record in records if not record.ok)
    certain = {record.trial.point for record in records if record.status in (OUT_OF_MEMORY, TIMEOUT, HANG)}
    return certain | {point for point, number in failures.items() if number >= _MOST_FAILURES}


# ---- where the results decide what is repeated: --budget, --until-interval


def _choose_by_results(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    """Return the next trial until the budget is spent, or all intervals are narrow enough."""
    measurement, hopeless = plan.experiment.measurement, find_hopeless_points(records)
    points = [point for point in plan.points if point not in hopeless]
    repeats = Counter(record.trial.point for record in records)
    point = _choose_most_useful_point(plan, points, repeats, records) if points else None
    if point is None:
        return None
    # --retry-failed leaves gaps, so records are not counted.
    used = {record.trial.repeat for record in records if record.trial.point == point}
    trial = Trial(*point, repeat=next(number for number in count() if number not in used))
    overhead = _estimate_overhead_seconds(point, records)
    most = StepCounts(measurement.warmup, measurement.steps)
    times: dict[int, list[TrialTimes]] = {}  # of the trials of this config, by number of devices
    for record in records:
        if record.trial.config == trial.config and is_measured(record):
            window = max(rank.window_seconds for rank in record.ranks)
            own = TrialTimes(record.seconds, window, list_step_seconds(record)[: record.steps])
            times.setdefault(record.trial.devices, []).append(own)
    counts = choose_counts(times.get(trial.devices, []), times.values(), most)
    if measurement.budget is not None:
        further = {further.point for further in plan.further_points}
        spent = sum(record.seconds for record in records if record.trial.point not in further)
        seconds_left = measurement.budget - spent
        # Every point is measured once, even past the budget. Further trials begin only if they can end within it.
        if repeats[point] and seconds_left < overhead + _LEAST_WINDOW:
            return None
        share = measurement.budget / (len(plan.points) * LEAST_ROUNDS)
        seconds = max(_LEAST_WINDOW, min(share, seconds_left) - overhead)
        counts = counts or most
        return NextTrial(trial, Measure(counts.warmup, counts.steps, seconds))
    if counts is not None:
        return NextTrial(trial, Measure(counts.warmup, counts.steps))
    # Until a window can be chosen, it takes no longer than what its trial costs besides it.
    return NextTrial(trial, Measure(most.warmup, most.steps, max(_LEAST_WINDOW, overhead), FIRST_WINDOW_STEPS))


def _choose_most_useful_point(
    plan: Plan, points: list[PointKey], repeats: Counter[PointKey], records: Sequence[TrialRecord]
) -> PointKey | None:
    """Return the point to repeat. Every point is measured four times, in interleaved rounds; then comes the point with
    the widest interval, or with --until-interval the point on which device time is spent best.

    The width is that of the interval in the report, with the factor that makes up for stopping when it looks narrow.
    """
    fewest = min(repeats[point] for point in points)
    if fewest < LEAST_ROUNDS:
        in_round = [trial.point for trial in plan.list_round(fewest) if trial.point in points]
        return next(point for point in in_round if repeats[point] == fewest)
    measurement = plan.experiment.measurement
    if measurement.until_interval is not None:
        repeated = _summarise_repeats(points, records, all_devices_wait=measurement.budget is not None)
        return choose_point(repeated, measurement.until_interval)
    widths = {}
    for point in points:
        good = [record for record in records if record.trial.point == point and is_measured(record)]
        speeds = [compute_samples_per_second(record) for record in good]
        relative = mean_interval(speeds, sequential=True).relative if len(speeds) >= LEAST_ROUNDS else None
        widths[point] = math.inf if relative is None else relative
    widest = max(points, key=widths.__getitem__)
    return widest if widths[widest] > _GOOD_ENOUGH else None


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


def _estimate_overhead_seconds(point: PointKey, records: Sequence[TrialRecord]) -> float:
    """Return the seconds besides its steps that the last trial of this point took, or else the last of any point."""
    good = [record for record in records if record.ok]
    same_point = [record for record in good if record.trial.point == point]
    last = next(reversed(same_point or good), None)
    if last is None:
        return _OVERHEAD_GUESS
    window = max(rank.window_seconds for rank in last.ranks)
    return max(0.0, last.seconds - window * (1 + last.warmup / max(1, last.steps)))


# ---- which point
#
# A trial on many devices costs many device-seconds, and the error of an efficiency is that of its point and of the
# 1-device point together. So the cheap 1-device point is repeated more often: if c is what a trial of a point costs,
# the repeats of two points tend to the ratio of their CV/√c.

MOST_REPEATS = 100  # of a point; where these do not make an interval narrow, more will not either


@dataclass(frozen=True)
class Repeated:
    """What is known about a point: its speed, what one more trial costs, and the point that efficiencies refer to."""

    speed: Estimate
    device_seconds: float
    baseline: PointKey | None = None  # None for the 1-device point itself


def choose_point(points: Mapping[PointKey, Repeated], target: float) -> PointKey | None:
    """Return the point whose next repeat narrows the wide intervals most per device-second. None if all are narrow.

    ``target`` is half an interval over its mean. The intervals are those of speeds and of efficiencies.
    """
    gains: defaultdict[PointKey, float] = defaultdict(float)
    for parts, width in list_intervals(points):
        for key in parts if width > target else ():
            error, repeats = points[key].speed.error, points[key].speed.repeats or 1
            # What one more repeat takes from the variance of the mean.
            gain = math.inf if error is None else error**2 / (repeats + 1)
            gains[key] += gain / points[key].device_seconds
    candidates = [key for key in points if gains.get(key) and (points[key].speed.repeats or 0) < MOST_REPEATS]
    return max(candidates, key=lambda key: gains[key], default=None)


def list_intervals(points: Mapping[PointKey, Repeated]) -> Iterator[tuple[Sequence[PointKey], float]]:
    """Yield every interval: the points whose errors are part of it, and half its width over its mean."""
    for key, point in points.items():
        baseline = point.baseline if point.baseline in points else None
        for parts in ((key,), *(((key, baseline),) if baseline else ())):
            relative = ratio([point.speed], [points[part].speed for part in parts[1:]], CONFIDENCE).relative
            yield parts, math.inf if relative is None else relative


# ---- how many steps
#
# A longer window makes a run mean steadier, but only as far as steps vary within a process; a further process costs
# its start again. With what a trial costs besides its window C, a step c, and the variances of steps within processes V
# and of run means between processes B, the product of cost and variance is least for √(C/c · V/B) steps (Kalibera and
# Jones, Rigorous benchmarking in reasonable time, 2013).

LEAST_STEPS = 5  # of a window
_LEAST_FREEDOM = 3  # repeats beyond the first of each point, before the variance between processes is estimated
_LEAST_BETWEEN = 0.001**2  # no machine repeats its speed more closely than by 0.1 %
_STEPS_IN_BLOCKS = 20  # shorter windows are not cut into blocks
_CHEAP_WARMUP = 0.1  # of what a trial costs besides its window: below that, warm-up is never shortened
_WARMUP_SHARE = 0.25  # of the steps of the window
_LEAST_WARMUP = 2


@dataclass(frozen=True)
class TrialTimes:
    """What a trial took in all, in its window, and in each step of it. The window may have been long or short."""

    seconds: float
    window_seconds: float
    steps: Sequence[float]

    @property
    def overhead_seconds(self) -> float:
        """All that it cost besides its window: start, warm-up, proofs, end."""
        return max(0.0, self.seconds - self.window_seconds)

    @property
    def step_seconds(self) -> float:
        return self.window_seconds / len(self.steps)


@dataclass(frozen=True)
class StepCounts:
    warmup: int
    steps: int


def choose_counts(
    own: Sequence[TrialTimes], points: Iterable[Sequence[TrialTimes]], most: StepCounts
) -> StepCounts | None:
    """Return how many steps the next trial of a point takes, at most ``most``; None while too little is known.

    ``own`` are the point's trials, ``points`` those of all points of its ladder: how steps vary is alike at all of
    them.
    """
    ratio = compute_variance_ratio(points)
    own = [trial for trial in own if trial.steps and trial.window_seconds > 0]
    if ratio is None or not own:
        return None
    overhead = median(trial.overhead_seconds for trial in own)
    step = median(trial.step_seconds for trial in own)
    steps = round(math.sqrt(overhead / step * ratio))
    steps = min(most.steps, max(LEAST_STEPS, steps))
    is_cheap = most.warmup * step <= _CHEAP_WARMUP * overhead
    warmup = most.warmup if is_cheap else min(most.warmup, max(_LEAST_WARMUP, round(_WARMUP_SHARE * steps)))
    return StepCounts(warmup, steps)


def compute_variance_ratio(points: Iterable[Sequence[TrialTimes]]) -> float | None:
    """Return the variance of steps within a process over that of run means between processes.

    Both are relative to the mean. None while there are too few repeats to know.
    """
    within: list[float] = []
    excess, freedom = 0.0, 0
    for trials in points:
        own = [(trial, value) for trial in trials if (value := compute_within_variance(trial.steps)) is not None]
        within += [value for _, value in own]
        if len(own) < 2:
            continue
        means = [trial.step_seconds for trial, _ in own]
        spread = variance(means) / fmean(means) ** 2
        by_chance = fmean(value / len(trial.steps) for trial, value in own)
        excess += (len(own) - 1) * (spread - by_chance)
        freedom += len(own) - 1
    if freedom < _LEAST_FREEDOM:
        return None
    return fmean(within) / max(_LEAST_BETWEEN, excess / freedom)


def compute_within_variance(steps: Sequence[float]) -> float | None:
    """Return the variance of a step relative to its mean, such that a mean of m steps has 1/m of it.

    Steps in a row are alike. So means of blocks are compared, which vary more than independent steps would.
    """
    if len(steps) < 2:
        return None
    block = math.isqrt(len(steps)) if len(steps) >= _STEPS_IN_BLOCKS else 1
    means = [fmean(steps[start : start + block]) for start in range(0, len(steps) - block + 1, block)]
    return block * variance(means) / fmean(steps) ** 2
