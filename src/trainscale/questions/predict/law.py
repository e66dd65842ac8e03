"""The law by which a ladder is continued, and how far predictions by it are off.

The logarithm of the efficiency changes with every further doubling as it did between the last two points. The errors
are those of every published curve, continued from its first points to a later one that is known. They are counted in
units of the steepest slope of the given points, so that smooth curves have narrow intervals. In these units, errors of
weak and strong scaling and of one and two doublings are alike, and together they are enough for quantiles.
bench/prediction.py compares the law on published curves with what one would compute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ...analyse.statistics import CONFIDENCE
from ...published.curve import PublishedCurve
from ...published.table import read_curves

LEAST_POINTS = 3
MOST_TIMES = 4  # as many devices as were measured; published curves have too few points to know more
_LEAST_SLOPE = 0.01  # of a unit: no curve is known to be smoother than 1 % for each doubling

Curve = Sequence[tuple[int, float]]  # devices, in increasing order, and samples per second of all of them


def continue_curve(curve: Curve, devices: int) -> float:
    """Return the samples per second on more devices than the curve has."""
    last_devices, last_speed = curve[-1]
    slope = min(0.0, compute_slopes(curve)[-1])  # more devices do not make each of them faster
    return last_speed / last_devices * devices * math.exp(slope * count_doublings(curve, devices))


def count_doublings(curve: Curve, devices: int) -> float:
    """Return how far beyond its last point a curve is continued: 1 is twice as many devices."""
    return math.log2(devices / curve[-1][0])


def compute_slopes(curve: Curve) -> list[float]:
    """Return the change of the logarithm of the efficiency per doubling, between every two neighbours."""
    logs = [(math.log2(devices), math.log(speed / devices)) for devices, speed in curve]
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(logs)]


def compute_unit(curve: Curve, devices: int) -> float:
    """Return the unit of errors of the predicted logarithm: the steepest slope so far, for each doubling beyond."""
    return max(_LEAST_SLOPE, *map(abs, compute_slopes(curve))) * count_doublings(curve, devices)


@dataclass(frozen=True)
class Case:
    """A published point that was predicted from the smaller ones of its curve."""

    curve: PublishedCurve
    points: int  # that were given
    devices: int
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
    """Return a case for every published point that may be predicted.

    A continuation over the first host boundary is left out, because predict.py refuses it.
    """
    cases = []
    for curve in read_curves():
        points = [(point.devices, curve.compute_speedup(point)) for point in curve.points]
        per_host = curve.devices_per_host
        for count in range(LEAST_POINTS, len(points)):
            given, most = points[:count], points[count - 1][0]
            for devices, speed in points[count:]:
                crosses_first_host = per_host is not None and most <= per_host < devices
                if devices <= MOST_TIMES * most and not crosses_first_host:
                    error = math.log(continue_curve(given, devices) / speed)
                    cases.append(Case(curve, count, devices, error, compute_unit(given, devices)))
    return tuple(cases)


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
