"""How far predictions are off: every published curve, continued from its first points to a later one that is known.

The errors are counted in units of the steepest slope of the points that were given (law.py), so that smooth curves have
narrow intervals. Counted so, those of weak and strong scaling and of one and two doublings are alike, and together they
are enough for quantiles. A continuation over the first host boundary is left out, because predict.py refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ...published.curve import PublishedCurve
from ...published.table import read_curves
from ..statistics import CONFIDENCE
from .law import LEAST_POINTS, Curve, compute_unit, continue_curve, count_doublings

MOST_TIMES = 4  # as many devices as were measured; published curves have too few points to know more


@dataclass(frozen=True)
class Case:
    """A published point that was predicted from the smaller ones of its curve."""

    curve: PublishedCurve
    points: int  # that were given
    devices: int
    doublings: float
    error: float  # logarithm of predicted / published
    unit: float

    @property
    def score(self) -> float:
        return self.error / self.unit


@dataclass(frozen=True)
class ErrorRange:
    """The scores between which 95 % of the cases lie."""

    low: float
    high: float
    cases: int


@cache
def collect_published_cases() -> tuple[Case, ...]:
    return tuple(case for curve in read_curves() for case in _make_cases(curve))


@cache
def estimate_published_errors() -> ErrorRange:
    return find_error_range(collect_published_cases())


def find_error_range(cases: Sequence[Case]) -> ErrorRange:
    """Return the range in which the score of one more such case would lie with 95 % confidence."""
    scores = sorted(case.score for case in cases)
    # If a new case is like the n others, its place among them is equally likely to be any of n + 1.
    outside = int((len(scores) + 1) * (1 - CONFIDENCE) / 2)
    assert outside >= 1, "there are too few cases to leave any out"
    return ErrorRange(scores[outside - 1], scores[-outside], len(scores))


def _make_cases(curve: PublishedCurve) -> Iterator[Case]:
    points = [(point.devices, curve.compute_speedup(point)) for point in curve.points]
    for count in range(LEAST_POINTS, len(points)):
        given: Curve = points[:count]
        for devices, speed in points[count:]:
            is_too_far = devices > MOST_TIMES * given[-1][0]
            if not is_too_far and not _crosses_first_host(curve, given[-1][0], devices):
                error = math.log(continue_curve(given, devices) / speed)
                yield Case(curve, count, devices, count_doublings(given, devices), error, compute_unit(given, devices))


def _crosses_first_host(curve: PublishedCurve, measured: int, predicted: int) -> bool:
    return curve.devices_per_host is not None and measured <= curve.devices_per_host < predicted
