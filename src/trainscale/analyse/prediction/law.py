"""The law by which a ladder is continued, and the unit in which its errors are counted.

The logarithm of the efficiency changes with every further doubling as it did between the last two points.
bench/prediction.py compares it on published curves with what one would compute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

LEAST_POINTS = 3
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
