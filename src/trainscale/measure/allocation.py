"""Decides which point to repeat so that all intervals become narrow for the least device time. Pure.

A trial on many devices costs many device-seconds, and the error of an efficiency is that of its point and of the
1-device point together. So the cheap 1-device point is repeated more often: if c is what a trial of a point costs, the
repeats of two points tend to the ratio of their CV/√c.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..analyse.estimates import Estimate, ratio
from ..analyse.statistics import CONFIDENCE, Interval
from ..spec.config import PointKey

MOST_REPEATS = 100  # of a point; where these do not make an interval narrow, more will not either


@dataclass(frozen=True)
class Repeated:
    """What is known about a point: its speed, what one more trial costs, and the point that efficiencies refer to."""

    speed: Estimate
    device_seconds: float
    baseline: PointKey | None = None  # None for the 1-device point itself


def choose_point(points: Mapping[PointKey, Repeated], target: float) -> PointKey | None:
    """Return the point whose next repeat narrows the wide intervals most per device-second. None if all are narrow.

    ``target`` is half an interval over its mean. Looked at are the intervals of speeds and of efficiencies.
    """
    gains: defaultdict[PointKey, float] = defaultdict(float)
    for parts in _select_wide_intervals(points, target):
        for key in parts:
            gains[key] += _compute_variance_gain(points[key]) / points[key].device_seconds
    candidates = [key for key in points if gains.get(key) and (points[key].speed.repeats or 0) < MOST_REPEATS]
    return max(candidates, key=lambda key: gains[key], default=None)


def find_widest_interval(points: Mapping[PointKey, Repeated]) -> float:
    """Return half the widest interval over its mean, of speeds and efficiencies."""
    return max((width for _, width in _list_intervals(points)), default=0.0)


def _select_wide_intervals(points: Mapping[PointKey, Repeated], target: float) -> Iterator[Sequence[PointKey]]:
    return (parts for parts, width in _list_intervals(points) if width > target)


def _list_intervals(points: Mapping[PointKey, Repeated]) -> Iterator[tuple[Sequence[PointKey], float]]:
    """Yield every interval: the points whose errors are part of it, and half its width over its mean."""
    for key, point in points.items():
        yield (key,), _compute_width(ratio([point.speed], [], CONFIDENCE))
        if point.baseline is not None and point.baseline in points:
            efficiency = ratio([point.speed], [points[point.baseline].speed], CONFIDENCE)
            yield (key, point.baseline), _compute_width(efficiency)


def _compute_width(interval: Interval) -> float:
    return math.inf if interval.relative is None else interval.relative


def _compute_variance_gain(point: Repeated) -> float:
    """Return how much one more repeat takes from the variance of a mean."""
    error, repeats = point.speed.error, point.speed.repeats or 1
    return math.inf if error is None else error**2 / (repeats + 1)
