"""From which batch on a point would be efficient: more work per step, and the same exchange."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ...spec.config import WEAK, Config
from .causes import CONTENTION, STRAGGLERS, WORK
from .exchange import EXCHANGE, fit_line
from .parts import Part
from .runs import PointRecords, compute_run_mean
from .sources import Sources

_TARGETS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
_LEAST_GAIN = 0.04  # of efficiency, for a larger batch to be worth a sentence
_MOST_GROWTH = 16  # of the batch: farther away, a straight line predicts nothing
_MODEST = 0.8  # the efficiency that is named where no target is within that growth
_AS_LONG = 0.9  # of the time of a step


@dataclass(frozen=True)
class BatchAdvice:
    """With this batch per device the point would reach this efficiency, if the exchange stays as exposed as it is."""

    batch: int
    efficiency: float
    measured_batches: int  # on one device; with 1, step times are taken to be proportional to the batch


def advise_batch(one_device: OneDeviceTimes, sources: Sources, parts: Sequence[Part]) -> BatchAdvice | None:
    """Return the batch that would help, or None if it is unknown or none would help."""
    seconds = {part.causes[0]: part.seconds for part in parts if len(part.causes) == 1}
    exposed = math.fsum(part.seconds for part in parts if set(part.causes) <= EXCHANGE)
    if WORK not in seconds or CONTENTION not in seconds or STRAGGLERS not in seconds or exposed <= 0:
        return None
    work = seconds[WORK]
    growth = (work + seconds[CONTENTION] + seconds[STRAGGLERS]) / work
    times = one_device.average_by_batch(sources)
    intercept, slope = (
        fit_line(times) if len(times) > 1 else (0.0, work / sources.config.batch_per_device(sources.devices))
    )
    if slope <= 0:
        return None
    current = work / (work * growth + exposed)
    batch_now = sources.config.batch_per_device(sources.devices)

    def batch_for(target: float) -> float:
        needed = target * exposed / (1 - target * growth)
        return (needed - intercept) / slope

    reachable = [target for target in _TARGETS if target * growth < 1 and target > current + _LEAST_GAIN]
    near = [target for target in reachable if batch_for(target) <= _MOST_GROWTH * batch_now]
    target = near[0] if near else _MODEST if _MODEST in reachable else None
    if target is None:
        return None
    return BatchAdvice(max(batch_now + 1, _round_up(batch_for(target))), target, max(1, len(times)))


def find_equal_batch(one_device: OneDeviceTimes, sources: Sources) -> int | None:
    """Return the smallest batch, of at most half the size, whose step takes as long on one device. None if none does.

    Then the samples are not what takes the time. On a GPU that is mostly the host, which starts the operations.
    """
    times = dict(one_device.average_by_batch(sources))
    batch = sources.config.batch_per_device(sources.devices)
    if batch not in times:
        return None
    as_long = [int(other) for other, seconds in times.items() if seconds >= _AS_LONG * times[batch]]
    return min((other for other in as_long if 2 * other <= batch), default=None)


def _round_up(batch: float) -> int:
    """Round up to two significant digits."""
    step = 10.0 ** max(0, math.floor(math.log10(max(batch, 1))) - 1)
    return math.ceil(batch / step) * int(step)


class OneDeviceTimes:
    """The seconds of a step on one device, by config. A run may have hundreds of batches, so every trial is averaged
    once and not for each point again.
    """

    def __init__(self, points: PointRecords) -> None:
        self._seconds: dict[Config, dict[Config, list[float]]] = {}  # by the config without its batch
        for (config, devices), records in points.items():
            if devices == 1:
                seconds = [compute_run_mean(record).compute for record in records]
                self._seconds.setdefault(replace(config, batch=0), {})[config] = seconds
        self._means: dict[Config, float] = {}

    def average_by_batch(self, sources: Sources) -> list[tuple[float, float]]:
        """Return the seconds of a step by batch, of every batch that was measured for the work of a point."""
        times: dict[int, list[float]] = {}
        for record in sources.one_device_records:
            batch = record.trial.config.batch_per_device(1)
            times.setdefault(batch, []).append(compute_run_mean(record).compute)
            for entry in (entry for rank in record.ranks for entry in rank.further_batches if entry.steps):
                times.setdefault(entry.batch, []).append(entry.seconds / entry.steps)
        means = {batch: fmean(values) for batch, values in times.items()}
        for config, seconds in self._find_other_batches(sources).items():
            further = times.get(config.batch)
            means[config.batch] = fmean([*further, *seconds]) if further else self._mean(config, seconds)
        return [(float(batch), mean) for batch, mean in sorted(means.items())]

    def _find_other_batches(self, sources: Sources) -> dict[Config, list[float]]:
        """Return the one-device trials of the same config with another batch."""
        if not sources.one_device_records or sources.config.scaling != WEAK:
            return {}
        config = sources.one_device_records[0].trial.config
        same = self._seconds.get(replace(config, batch=0), {})
        return {other: seconds for other, seconds in same.items() if other.batch != config.batch}

    def _mean(self, config: Config, seconds: Sequence[float]) -> float:
        if config not in self._means:
            self._means[config] = fmean(seconds)
        return self._means[config]
