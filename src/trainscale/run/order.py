"""Which trial comes next: a fixed list, or whatever a time budget is best spent on. Pure: it looks at the records so
far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from ..analyse.statistics import mean_interval
from ..analyse.throughput import samples_per_second
from ..record.trial import HANG, OUT_OF_MEMORY, TIMEOUT, TrialRecord
from ..spec.config import Config, Trial
from ..spec.plan import Plan
from ..worker.job import Measure

Point = tuple[Config, int]

_GOOD_ENOUGH = 0.01  # half an interval over the mean
_LEAST_REPEATS = 2  # below, there is no interval
_AIM_REPEATS = 3  # the share of a budget that a trial may take is cut for this many of every point
_OVERHEAD_GUESS = 8.0  # seconds of a trial besides its steps, until one has been seen
_LEAST_WINDOW = 1.0
_MOST_FAILURES = 2


@dataclass(frozen=True)
class NextTrial:
    trial: Trial
    measure: Measure


def given_up(records: Sequence[TrialRecord]) -> set[Point]:
    """Points not worth another try: what ran out of memory or time will again; anything else may fail twice."""
    failures = Counter(record.trial.point for record in records if not record.ok)
    hopeless = {r.trial.point for r in records if r.status in (OUT_OF_MEMORY, TIMEOUT, HANG)}
    return hopeless | {point for point, count in failures.items() if count >= _MOST_FAILURES}


def next_trial(plan: Plan, records: Sequence[TrialRecord]) -> NextTrial | None:
    """What to run now, or None when the run is complete."""
    if plan.experiment.measurement.budget is not None:
        return _next_by_budget(plan, records, plan.experiment.measurement.budget)
    done = {record.trial.key for record in records}
    hopeless = given_up(records)
    measure = Measure(plan.experiment.measurement.warmup, plan.experiment.measurement.steps)
    left = (t for t in plan.trials() if t.key not in done and t.point not in hopeless)
    trial = next(left, None)
    return NextTrial(trial, measure) if trial else None


def _next_by_budget(plan: Plan, records: Sequence[TrialRecord], budget: float) -> NextTrial | None:
    hopeless = given_up(records)
    points = [point for point in plan.points if point not in hopeless]
    if not points:
        return None
    left = budget - sum(record.seconds for record in records)
    taken = Counter(record.trial.point for record in records)
    trial = _widest(plan, points, taken, records)
    if trial is None:
        return None
    overhead = _overhead(trial.point, records)
    share = budget / (len(plan.points) * _AIM_REPEATS)
    window = max(_LEAST_WINDOW, min(share, left) - overhead)
    # Every point is measured once, even past the budget; beyond that, nothing is begun that cannot end within it.
    if taken[trial.point] and left < overhead + _LEAST_WINDOW:
        return None
    return NextTrial(trial, Measure(plan.experiment.measurement.warmup, plan.experiment.measurement.steps, window))


def _widest(plan: Plan, points: list[Point], taken: Counter[Point], records: Sequence[TrialRecord]) -> Trial | None:
    """First every point a few times, in interleaved rounds; then the one with the widest interval."""
    fewest = min(taken[point] for point in points)
    if fewest < _LEAST_REPEATS:
        in_round = [trial.point for trial in plan.round(fewest) if trial.point in points]
        point = next(point for point in in_round if taken[point] == fewest)
        return _unused(point, records)
    widths = {point: _width(point, records) for point in points}
    point = max(points, key=lambda one: widths[one])
    return _unused(point, records) if widths[point] > _GOOD_ENOUGH else None


def _unused(point: Point, records: Sequence[TrialRecord]) -> Trial:
    """The first repeat of a point that has no record. Their count will not do: --retry-failed leaves gaps."""
    used = {record.trial.repeat for record in records if record.trial.point == point}
    return Trial(*point, repeat=next(n for n in count() if n not in used))


def _width(point: Point, records: Sequence[TrialRecord]) -> float:
    speeds = [samples_per_second(r) for r in records if r.trial.point == point and r.ok]
    relative = mean_interval(speeds).relative if len(speeds) > 1 else None
    return float("inf") if relative is None else relative


def _overhead(point: Point, records: Sequence[TrialRecord]) -> float:
    """What a trial of this point, or else of any, took besides its measured and warm-up steps."""
    for candidates in ([r for r in records if r.ok and r.trial.point == point], [r for r in records if r.ok]):
        if candidates:
            last = candidates[-1]
            window = max(rank.window_seconds for rank in last.ranks)
            return max(0.0, last.seconds - window * (1 + last.warmup / max(1, last.steps)))
    return _OVERHEAD_GUESS
