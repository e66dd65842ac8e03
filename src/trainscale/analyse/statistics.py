"""Means, ratios and spreads with their 95 % intervals.

The values are run means, one per repeat. Steps within a run are correlated: they only give the jitter.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, median, variance

CONFIDENCE = 0.95
_QUANTILE = 1 - (1 - CONFIDENCE) / 2
LEAST_REPEATS = 3  # for an interval: that of two repeats is 3 times as wide
MOST_REPEATS = 200  # nobody repeats more often to decide between two runs
# Where the values decide their number, an interval is wider by 1 + this / √repeats (bench/intervals.py):
# such a rule stops too often when values lie close together by chance.
_SEQUENTIAL = 0.8


@dataclass(frozen=True)
class Interval:
    """A mean over run means with its 95 % interval.

    ``low`` and ``high`` are None with fewer than three runs, and for exact values.
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
        """Return the interval in another unit; ``factor`` is positive."""
        return Interval(
            self.mean * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )


def mean_interval(values: Sequence[float], sequential: bool = False) -> Interval:
    """Return the mean with Student's t interval. ``sequential``: the values decided their number."""
    mean = fmean(values)
    if len(values) < LEAST_REPEATS:
        return Interval(mean)
    reach = student_t(_QUANTILE, len(values) - 1) * _standard_error(values, mean, sequential)
    return Interval(mean, mean - reach, mean + reach)


def sequential_factor(count: int, is_sequential: bool = True) -> float:
    """Return the factor of an interval where the values decide how many there are."""
    return 1 + _SEQUENTIAL / math.sqrt(count) if is_sequential else 1.0


def _standard_error(values: Sequence[float], mean: float, sequential: bool) -> float:
    return sequential_factor(len(values), sequential) * math.sqrt(variance(values, mean) / len(values))


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], sequential: bool = False) -> Interval:
    sides = []
    for values in (numerators, denominators):
        mean = fmean(values)
        has_error = len(values) >= LEAST_REPEATS
        error = _standard_error(values, mean, sequential) / mean if has_error else None
        sides.append(Estimate(mean, len(values), error, sequential))
    return ratio(sides[:1], sides[1:], CONFIDENCE)


def jitter(values: Sequence[float]) -> float:
    """Return a robust standard deviation, as tf_cnn_benchmarks defines it."""
    centre = median(values)
    return 1.4826 * median(abs(value - centre) for value in values)


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(freedom, probability))


# ---- speeds with their errors, at any confidence


@dataclass(frozen=True)
class Estimate:
    """A mean over run means. ``error`` is its relative standard error, with the sequential factor."""

    mean: float
    repeats: int | None  # None for an exact number
    error: float | None = None
    is_sequential: bool = False

    @property
    def freedom(self) -> float:
        return math.inf if self.repeats is None else self.repeats - 1

    @property
    def spread(self) -> float | None:
        """Of single repeats, relative."""
        if self.error is None or self.repeats is None:
            return self.error
        return self.error * math.sqrt(self.repeats) / sequential_factor(self.repeats, self.is_sequential)

    def with_repeats(self, repeats: int, spread: float) -> Estimate:
        if self.repeats is None:
            return self
        factor = sequential_factor(repeats, self.is_sequential)
        return replace(self, repeats=repeats, error=spread * factor / math.sqrt(repeats))


def make_estimate(interval: Interval, repeats: int, is_sequential: bool) -> Estimate:
    error, half = None, interval.half_width
    if half is not None and repeats >= LEAST_REPEATS:
        error = half / student_t(_QUANTILE, repeats - 1) / interval.mean
    return Estimate(interval.mean, repeats, error, is_sequential)


def quotient(value: Estimate, other: Estimate, factor: float = 1.0) -> Estimate:
    """Return ``value / other * factor``, with the fewer repeats of the two."""
    counts = [part.repeats for part in (value, other) if part.repeats is not None]
    errors = [part.error for part in (value, other) if part.error is not None]
    error = math.hypot(*errors) if len(errors) == 2 else None
    is_sequential = value.is_sequential or other.is_sequential
    return Estimate(value.mean / other.mean * factor, min(counts, default=None), error, is_sequential)


def ratio(numerators: Sequence[Estimate], denominators: Sequence[Estimate], confidence: float) -> Interval:
    """Return a product over another, with Welch's t interval on the log scale.

    By the delta method the log of a mean has the variance s²/(n·mean²).
    """
    centre = math.prod(part.mean for part in numerators) / math.prod(part.mean for part in denominators)
    reach = _compute_reach([*numerators, *denominators], confidence)
    if reach is None:
        return Interval(centre)
    return Interval(centre, centre * math.exp(-reach), centre * math.exp(reach))


def count_repeats(first: Estimate, second: Estimate, reach: float, confidence: float) -> int | None:
    """Return the repeats on each side for an interval no wider than ``reach`` (log scale).

    A side without a spread has that of the other. None if none is known, or above MOST_REPEATS.
    """
    known = [part.repeats for part in (first, second) if part.repeats is not None]
    spreads = [part.spread for part in (first, second) if part.repeats is not None]
    measured = [spread for spread in spreads if spread is not None]
    if not measured or reach <= 0:
        return None
    sides = [(part, measured[0] if part.spread is None else part.spread) for part in (first, second)]
    candidates = range(max(LEAST_REPEATS, min(known) + 1), MOST_REPEATS + 1)

    def is_enough(repeats: int) -> bool:
        parts = [part.with_repeats(repeats, spread) for part, spread in sides]
        needed = _compute_reach(parts, confidence)
        return needed is not None and needed <= reach

    index = bisect_left(candidates, True, key=is_enough)  # more repeats never give a wider interval
    return candidates[index] if index < len(candidates) else None


def _compute_reach(parts: Sequence[Estimate], confidence: float) -> float | None:
    """Return half the width of the interval on the log scale."""
    squares = [(part.error**2, part.freedom) for part in parts if part.error is not None]
    if len(squares) < len(parts):
        return None
    total = math.fsum(square for square, _ in squares)
    if total == 0:
        return 0.0
    terms = (square**2 / freedom for square, freedom in squares if math.isfinite(freedom))
    welch = total**2 / math.fsum(terms)
    # Welch's degrees of freedom rely on spreads that a sequential rule leaves small by chance.
    freedom = min(part.freedom for part in parts) if any(part.is_sequential for part in parts) else welch
    return student_t(1 - (1 - confidence) / 2, freedom) * math.sqrt(total)
