"""Means, ratios and spreads with their 95 % intervals: pure functions of numbers.

The values are run means: one number per repeat, each from fresh processes. Steps within a run are correlated with each
other, so no interval is computed from them; they only give the jitter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, variance

CONFIDENCE = 0.95
LEAST_REPEATS = 3  # for an interval: two repeats hardly show a spread, and their interval is 3 times that of three

# Where the values decide how many repeats there are, an interval is wider by 1 + this / √repeats (bench/coverage.py).
_SEQUENTIAL = 0.8

# The median absolute deviation of a normal distribution times this is its standard deviation.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Interval:
    """A mean over run means with its 95 % interval.

    ``low`` and ``high`` are None if there were fewer than three runs, or if the value is exact by definition (a
    speed-up of 1 against itself).
    """

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def relative(self) -> float | None:
        """Half the interval divided by the mean: 0.01 is ±1 %."""
        half = self.half_width
        return None if half is None or not self.mean else half / abs(self.mean)

    def scaled(self, factor: float) -> Interval:
        """Return the interval of the same quantity in another unit; ``factor`` is positive."""
        return Interval(
            self.mean * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )


def mean_interval(values: Sequence[float], sequential: bool = False) -> Interval:
    """Return the mean with Student's t interval. One or two values give no interval; none is an error.

    ``sequential``: the values themselves decided how many there are, as under a time budget.
    """
    if not values:
        raise ValueError("a mean needs at least one value")
    mean = fmean(values)
    if len(values) < LEAST_REPEATS:
        return Interval(mean)
    error = _standard_error(values, mean, sequential)
    reach = student_t(1 - (1 - CONFIDENCE) / 2, len(values) - 1) * error
    return Interval(mean, mean - reach, mean + reach)


def sequential_factor(count: int) -> float:
    """Return how much wider an interval is where the values decide how many of them there are.

    A rule that repeats until an interval is narrow stops too often when the values lie close together by chance. Then
    the interval is too narrow, and Student's t covers less than 95 %. The factor makes up for it: it decides when to
    stop, and it is part of the interval that is shown.
    """
    return 1 + _SEQUENTIAL / math.sqrt(count)


def _standard_error(values: Sequence[float], mean: float, sequential: bool) -> float:
    """Return the standard error of a mean, with the factor of a sequential rule if one chose the number of values."""
    factor = sequential_factor(len(values)) if sequential else 1.0
    return factor * math.sqrt(variance(values, mean) / len(values))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], sequential: bool = False) -> Interval:
    """Return the ratio of the means of two independent positive samples, with Welch's t interval on the log scale.

    The centre is exactly mean/mean, so that it agrees with the two means wherever all three are shown. By the delta
    method the log of a mean has the variance s²/(n·mean²); the two add up, and the degrees of freedom are Welch's. The
    log scale is used because a ratio's limits cannot be negative, and because swapping the samples then gives 1/limits.
    Either side with fewer than three values gives no interval. ``sequential`` is that of ``mean_interval``; the degrees
    of freedom are then those of the side with fewer values, because Welch's rely on spreads that are small by chance.
    """
    if not numerators or not denominators:
        raise ValueError("a ratio of means needs at least one value on each side")
    top, bottom = fmean(numerators), fmean(denominators)
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio on the log scale needs positive values")
    ratio = top / bottom
    if min(len(numerators), len(denominators)) < LEAST_REPEATS:
        return Interval(ratio)
    first = (_standard_error(numerators, top, sequential) / top) ** 2
    second = (_standard_error(denominators, bottom, sequential) / bottom) ** 2
    if first + second == 0:
        return Interval(ratio, ratio, ratio)
    freedoms = len(numerators) - 1, len(denominators) - 1
    welch = (first + second) ** 2 / (first**2 / freedoms[0] + second**2 / freedoms[1])
    freedom = min(freedoms) if sequential else welch
    reach = student_t(1 - (1 - CONFIDENCE) / 2, freedom) * math.sqrt(first + second)
    return Interval(ratio, ratio * math.exp(-reach), ratio * math.exp(reach))


def jitter(values: Sequence[float]) -> float:
    """Return a standard deviation that a few outliers cannot move: 1.4826 · median absolute deviation.

    Definition and name are those of tf_cnn_benchmarks.
    """
    centre = median(values)
    return MAD_TO_SIGMA * median(abs(value - centre) for value in values)


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution. ``freedom`` need not be whole (Welch's is not)."""
    if not 0 < probability < 1 or freedom <= 0:
        raise ValueError(f"no quantile at probability {probability} with {freedom} degrees of freedom")
    if probability < 0.5:
        return -student_t(1 - probability, freedom)
    from scipy.special import stdtrit  # takes a while, so it is imported only when an interval is computed

    return float(stdtrit(freedom, probability))
