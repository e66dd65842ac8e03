"""The parts of a step: differences of levels, each of which includes one cause more than the level before it.

A level that the records do not contain is left out. The part between its neighbours then has several causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..statistics import Interval
from .causes import COMMUNICATION, CONTENTION, CROSSING, INPUT, SERVERS, STRAGGLERS, WORK
from .resampling import Means, Quantity, Resampled
from .sources import ALONE, APART, NEAR, NEAR_APART, ONE_DEVICE, POINT, Sources

# One or two repeats have no interval, so a part must be larger to count.
SMALL_WITHOUT_INTERVAL = 0.1


@dataclass(frozen=True)
class Part:
    """A part of the step time. ``share`` of all parts adds up to 1 and is never negative.

    ``measured`` is the difference as it was measured, with its interval; chance may make it negative.
    """

    causes: tuple[str, ...]
    seconds: float
    share: float
    measured: Interval

    @property
    def is_work(self) -> bool:
        return WORK in self.causes

    @property
    def is_impossible(self) -> bool:
        """Whether it is negative by more than chance: a point that it was computed from is not what it should be."""
        if self.measured.high is None:
            return self.measured.mean < -SMALL_WITHOUT_INTERVAL
        return self.measured.mean < 0 and self.measured.high < 0


Level = tuple[str, Quantity | None]


def split_step(sources: Sources) -> tuple[Part, ...]:
    """Return the parts of the point's step, in the order of causes."""
    resampled = Resampled(sources.runs)
    known: list[tuple[tuple[str, ...], Quantity]] = []
    waiting: list[str] = []
    for cause, quantity in make_levels(sources):
        waiting.append(cause)
        if quantity is not None:
            known.append((tuple(waiting), quantity))
            waiting = []
    bounds = _order_levels([float(quantity(resampled.means)) for _, quantity in known])
    total = bounds[-1]
    parts = []
    for index, (causes, quantity) in enumerate(known):
        before = known[index - 1][1] if index else _zero
        seconds = bounds[index] - (bounds[index - 1] if index else 0.0)
        parts.append(Part(causes, seconds, seconds / total, resampled.compute_interval(_make_share(before, quantity))))
    return tuple(parts)


def _zero(_: Means) -> float:
    return 0.0


def _make_share(before: Quantity, after: Quantity) -> Quantity:
    return lambda means: (after(means) - before(means)) / means[POINT].step


def _order_levels(levels: Sequence[float]) -> list[float]:
    """Return the levels in ascending order. The first and the last one stay, unless the first is the largest.

    Chance can put a level above the next one. The part between them is then nothing, and not negative.
    """
    last = levels[-1]
    ordered = [min(levels[0], last)]
    for level in levels[1:]:
        ordered.append(min(max(level, ordered[-1]), last))
    return ordered


def make_levels(sources: Sources) -> list[Level]:
    """Return the causes that can play a part, and for each the seconds of a step with it and all before it."""
    has_near, has_hosts = sources.has(NEAR, NEAR_APART), sources.hosts > 1 and sources.near_devices > 0
    result: list[Level] = [
        (WORK, _make_work_level(sources)),
        (CONTENTION, _make_contention_level(sources) if sources.has(APART) else None),
        (STRAGGLERS, _make_stragglers_level(sources) if sources.has(APART) else None),
    ]
    if sources.has_servers:
        can_split = sources.has(ONE_DEVICE, ALONE, APART) and not sources.one_device_exchanges
        result.append((COMMUNICATION, _make_one_worker_level(sources) if can_split else None))
        if has_hosts:
            can_split = can_split and has_near
            result.append((SERVERS, _make_servers_level(sources) if can_split else None))
    elif has_hosts:
        result.append((COMMUNICATION, _make_one_host_level(sources) if has_near and sources.has(APART) else None))
    result.append((CROSSING if has_hosts else SERVERS if sources.has_servers else COMMUNICATION, _read_point_compute))
    if sources.has_input:
        result.append((INPUT, _read_point_step))
    return result


def _make_work_level(sources: Sources) -> Quantity | None:
    """One worker with its parameter server exchanges gradients too, so its step is not the work alone."""
    if not sources.has(ONE_DEVICE) or (sources.has_servers and sources.one_device_exchanges and sources.has(APART)):
        return None
    return lambda means: means[ONE_DEVICE].compute * sources.work_scale


def _make_contention_level(sources: Sources) -> Quantity:
    """Ranks that share cores also need longer for the exchange, which those that exchange nothing do not show."""
    work = _make_work_level(sources)
    if work is None or not sources.lacks_cores:
        return lambda means: means[APART].compute
    return lambda means: _larger(means[APART].compute, work(means) + means[POINT].core_delay)


def _make_stragglers_level(sources: Sources) -> Quantity:
    """A rank that lacks its core is late by its computing and by its part of the exchange."""
    contention = _make_contention_level(sources)

    def level(means: Means) -> Any:
        late_alone = means[APART].compute + means[APART].stragglers
        if not sources.lacks_cores:
            return late_alone
        return _larger(late_alone, contention(means) + means[POINT].further_core_delay)

    return level


def _read_point_compute(means: Means) -> Any:
    return means[POINT].compute


def _read_point_step(means: Means) -> Any:
    return means[POINT].step


def _make_one_worker_level(sources: Sources) -> Quantity:
    """What one worker pays for the exchange with its servers, every worker pays."""
    stragglers = _make_stragglers_level(sources)
    return lambda means: stragglers(means) + _larger(means[ALONE].compute - means[ONE_DEVICE].compute, 0.0)


def _make_servers_level(sources: Sources) -> Quantity:
    """The servers' work for several workers, as on one host, grows with the number of workers."""
    growth = (sources.devices - 1) / (sources.near_devices - 1)
    one_worker = _make_one_worker_level(sources)

    def level(means: Means) -> Any:
        near = means[NEAR].compute - means[NEAR_APART].compute - means[NEAR_APART].stragglers
        exchange = _larger(means[ALONE].compute - means[ONE_DEVICE].compute, 0.0)
        return one_worker(means) + _larger(near - exchange, 0.0) * growth

    return level


def _make_one_host_level(sources: Sources) -> Quantity:
    """A ring of n ranks sends 2(n - 1)/n of the gradients, so the exchange of one host is scaled by that."""
    near, here = sources.near_devices, sources.devices
    growth = ((here - 1) / here) / ((near - 1) / near)
    stragglers = _make_stragglers_level(sources)

    def level(means: Means) -> Any:
        exposed = means[NEAR].compute - means[NEAR_APART].compute - means[NEAR_APART].stragglers
        return stragglers(means) + _larger(exposed, 0.0) * growth

    return level


def _larger(first: Any, second: Any) -> Any:
    import numpy as np

    return np.maximum(first, second)
