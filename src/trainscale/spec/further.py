"""The points that a run measures beside its ladder with --explain: the same work, with nothing exchanged.

They are chosen so that, with what is measured at the end of trials, they take at most 40 % of the estimated time of the
ladder. Those that an explanation needs most come first: the most devices, then one device, then the counts in between,
from the largest. Where a ladder is so short that not even those fit without which nothing is known of the first series,
all have fewer repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.job import ASYNCHRONOUS, Measure
from .choices import OVERHEAD_SECONDS
from .config import BESIDE, Config, PointKey

if TYPE_CHECKING:
    from .plan import Plan

# Of the estimated time of the ladder. The rest of 40 % is for exchanges alone and other batches, which take up to 5 %
# of a window (worker/training/explanation.py).
MOST_TIME = 0.36
_REPEATS = 3  # the fewest that give an interval
_LEAST_STEPS = 20
_STEPS_SHARES = (0.5, 0.3, 0.2)  # of the steps of the ladder; fewer, if more points fit then
_LEAST_WINDOW = 1.0  # seconds, where a budget limits a trial
_INDEPENDENT = "independent"


@dataclass(frozen=True)
class FurtherPoint:
    """A point that is measured beside the ladder: how often, and for how long each time."""

    config: Config
    devices: int
    repeats: int
    measure: Measure

    @property
    def point(self) -> PointKey:
        return self.config, self.devices


def remove_exchange(config: Config) -> Config:
    """Return the config of the same work on the same devices that exchanges nothing."""
    return replace(config, strategy=_INDEPENDENT, servers=0, server_placement=BESIDE, servers_per_host=0)


def choose_further_points(plan: Plan) -> tuple[FurtherPoint, ...]:
    """Return the points that fit into the time, with fewer repeats where those that are needed do not fit otherwise.

    The point that is needed most is always among them, and measured at least once.
    """
    measurement = plan.experiment.measurement
    if not measurement.explain:
        return ()
    candidates = list(dict.fromkeys(_list_candidates(plan)))
    needed = _find_needed(plan, candidates)
    most = _REPEATS if measurement.is_sequential else min(_REPEATS, measurement.repeats)
    found: list[tuple[FurtherPoint, ...]] = []
    for repeats in range(most, 0, -1):
        measures = [_make_measure(plan, repeats, len(candidates), share) for share in _STEPS_SHARES]
        # The most points, and of as many points those with the most steps.
        chosen = max((_select_fitting(plan, candidates, repeats, measure) for measure in measures), key=len)
        if needed <= {further.point for further in chosen}:
            return chosen
        found.append(chosen)
    return next(filter(None, found), tuple(FurtherPoint(*point, 1, measures[-1]) for point in candidates[:1]))


def _find_needed(plan: Plan, candidates: list[PointKey]) -> set[PointKey]:
    """Return the candidates without which the first series has no answer.

    Its one-device point is the work alone, unless it has servers, with which it exchanges gradients.
    """
    if not candidates:
        return set()
    needed, of_first = set(candidates[:1]), candidates[0][0]
    for config, ladder in zip(plan.configs, plan.ladders, strict=True):
        if remove_exchange(config) == of_first and (config.servers or 1 not in ladder):
            needed |= {(of_first, 1)} & set(candidates)
    return needed


def _select_fitting(plan: Plan, candidates: list[PointKey], repeats: int, measure: Measure) -> tuple[FurtherPoint, ...]:
    """Return the points that fit, if the first one does."""
    allowed, taken = MOST_TIME * plan.ladder_seconds, 0.0
    chosen: list[FurtherPoint] = []
    for config, devices in candidates:
        seconds = repeats * plan.estimate_seconds(config, devices, measure)
        if taken + seconds <= allowed:
            chosen.append(FurtherPoint(config, devices, repeats, measure))
            taken += seconds
        elif not chosen:
            break
    return tuple(chosen)


def _make_measure(plan: Plan, repeats: int, candidates: int, share: float) -> Measure:
    """Return how long a trial is: a share of the steps of the ladder, or the window that a budget leaves."""
    measurement = plan.experiment.measurement
    steps = max(min(_LEAST_STEPS, measurement.steps), int(share * measurement.steps))
    if measurement.budget is None:
        return Measure(measurement.warmup, steps)
    trials = repeats * max(1, candidates)
    window = MOST_TIME * measurement.budget / trials - OVERHEAD_SECONDS[plan.available.kind]
    return Measure(measurement.warmup, measurement.steps, max(_LEAST_WINDOW, window))


def _list_candidates(plan: Plan) -> Iterator[PointKey]:
    """Yield the points in the order in which they are needed: of all series the most devices, then one, then others."""
    planned = set(plan.points)
    series = [
        (remove_exchange(config), ladder)
        for config, ladder in zip(plan.configs, plan.ladders, strict=True)
        if _is_explained(config) and max(ladder) > 1
    ]
    orders = [[max(ladder), 1, *sorted(ladder, reverse=True)] for _, ladder in series]
    for place in range(max(map(len, orders), default=0)):
        for (config, _), order in zip(series, orders, strict=True):
            if place < len(order) and (config, order[place]) not in planned:
                yield config, order[place]


def _is_explained(config: Config) -> bool:
    """Return whether the strategy is synchronous on several devices, and its framework has independent ranks."""
    is_synchronous = config.strategy not in (*ASYNCHRONOUS, "local")
    return is_synchronous and _INDEPENDENT in FRAMEWORKS[config.framework].strategies
