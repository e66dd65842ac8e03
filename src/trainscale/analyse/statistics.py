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

# The median absolute deviation of a normal distribution times this is its standard deviation.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Interval:
    """A mean over run means with its 95 % interval.

    ``low`` and ``high`` are None if there was only one run, or if the value is exact by definition (a speed-up of 1
    against itself).
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


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean with Student's t interval. One value gives a mean without an interval; none is an error."""
    if not values:
        raise ValueError("a mean needs at least one value")
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean)
    error = math.sqrt(variance(values, mean) / len(values))
    reach = student_t(1 - (1 - CONFIDENCE) / 2, len(values) - 1) * error
    return Interval(mean, mean - reach, mean + reach)


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Return the ratio of the means of two independent positive samples, with Welch's t interval on the log scale.

    The centre is exactly mean/mean, so that it agrees with the two means wherever all three are shown. By the delta
    method the log of a mean has the variance s²/(n·mean²); the two add up, and the degrees of freedom are Welch's. The
    log scale is used because a ratio's limits cannot be negative, and because swapping the samples then gives 1/limits.
    """
    if not numerators or not denominators:
        raise ValueError("a ratio of means needs at least one value on each side")
    top, bottom = fmean(numerators), fmean(denominators)
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio on the log scale needs positive values")
    ratio = top / bottom
    if len(numerators) < 2 or len(denominators) < 2:
        return Interval(ratio)
    first = variance(numerators, top) / (len(numerators) * top**2)
    second = variance(denominators, bottom) / (len(denominators) * bottom**2)
    if first + second == 0:
        return Interval(ratio, ratio, ratio)
    freedom = (first + second) ** 2 / (first**2 / (len(numerators) - 1) + second**2 / (len(denominators) - 1))
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
