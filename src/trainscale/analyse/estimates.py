"""Speeds with their errors, ratios of them with intervals, and how many repeats an interval needs.

``statistics.ratio_interval`` computes the same from run means at 95 %. Here the confidence is chosen, a speed may come
from a file that has no run means or be an exact number, and the two sides may have been measured by different rules.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from .statistics import CONFIDENCE, LEAST_REPEATS, Interval, sequential_factor, student_t

MOST_REPEATS = 200  # nobody repeats more often to decide between two runs


@dataclass(frozen=True)
class Estimate:
    """A mean over run means.

    ``error`` is the standard error divided by the mean, None where fewer than three repeats give no interval. If the
    values decided how many repeats there are (``is_sequential``), it has the factor of that rule.
    """

    mean: float
    repeats: int | None  # None for an exact number
    error: float | None = None
    is_sequential: bool = False

    @property
    def freedom(self) -> float:
        return math.inf if self.repeats is None else self.repeats - 1

    @property
    def spread(self) -> float | None:
        """The coefficient of variation of single repeats."""
        if self.error is None or self.repeats is None:
            return self.error
        factor = sequential_factor(self.repeats) if self.is_sequential else 1.0
        return self.error * math.sqrt(self.repeats) / factor

    def with_repeats(self, repeats: int, spread: float) -> Estimate:
        """Return the estimate that so many repeats of this spread would give. An exact number stays."""
        if self.repeats is None:
            return self
        factor = sequential_factor(repeats) if self.is_sequential else 1.0
        return Estimate(self.mean, repeats, spread * factor / math.sqrt(repeats), self.is_sequential)


def make_estimate(interval: Interval, repeats: int, is_sequential: bool) -> Estimate:
    """Return the estimate behind a mean with its 95 % interval, as series and results.json have it."""
    half = interval.half_width
    if half is None or repeats < LEAST_REPEATS:
        return Estimate(interval.mean, repeats, None, is_sequential)
    quantile = student_t(1 - (1 - CONFIDENCE) / 2, repeats - 1)
    return Estimate(interval.mean, repeats, half / quantile / interval.mean, is_sequential)


def make_exact(value: float) -> Estimate:
    """Return a number that is taken as it is, such as a speed that a contract names."""
    return Estimate(value, None, 0.0)


def quotient(value: Estimate, other: Estimate, factor: float = 1.0) -> Estimate:
    """Return one estimate divided by another, times ``factor``, as an efficiency is made of two speeds.

    It counts as repeated as often as the one with the fewer repeats, which gives the wider interval.
    """
    counts = [part.repeats for part in (value, other) if part.repeats is not None]
    error = None if value.error is None or other.error is None else math.hypot(value.error, other.error)
    is_sequential = value.is_sequential or other.is_sequential
    return Estimate(value.mean / other.mean * factor, min(counts, default=None), error, is_sequential)


def ratio(numerators: Sequence[Estimate], denominators: Sequence[Estimate], confidence: float) -> Interval:
    """Return the product of the numerators over that of the denominators, with Welch's t interval on the log scale.

    There is no interval if any of them has no error. Where a rule that looked at the values chose the repeats of any,
    the degrees of freedom are the fewest of all, because Welch's rely on spreads that are small by chance.
    """
    centre = math.prod(part.mean for part in numerators) / math.prod(part.mean for part in denominators)
    parts = [*numerators, *denominators]
    reach = _compute_reach(parts, confidence)
    return Interval(centre) if reach is None else Interval(centre, centre * math.exp(-reach), centre * math.exp(reach))


def count_repeats(first: Estimate, second: Estimate, reach: float, confidence: float) -> int | None:
    """Return how many repeats on each side give an interval that reaches no further than ``reach`` (log scale).

    The spread is that of the repeats so far, so the number is rough; a side without one is taken to have that of the
    other. None if no spread is known, or if more than MOST_REPEATS would be needed.
    """
    known = [part.repeats for part in (first, second) if part.repeats is not None]
    measured = [part.spread for part in (first, second) if part.repeats is not None and part.spread is not None]
    if not measured or reach <= 0:
        return None
    spreads = [_replace_none(part.spread, measured[0]) for part in (first, second)]
    candidates = range(max(LEAST_REPEATS, min(known) + 1), MOST_REPEATS + 1)

    def is_enough(repeats: int) -> bool:
        sides = [part.with_repeats(repeats, spread) for part, spread in zip((first, second), spreads, strict=True)]
        needed = _compute_reach(sides, confidence)
        return needed is not None and needed <= reach

    index = bisect_left(candidates, True, key=is_enough)  # more repeats never give a wider interval
    return candidates[index] if index < len(candidates) else None


def _replace_none(value: float | None, default: float) -> float:
    return default if value is None else value


def _compute_reach(parts: Sequence[Estimate], confidence: float) -> float | None:
    """Return half the width of the interval on the log scale."""
    errors = [part.error for part in parts if part.error is not None]
    if len(errors) < len(parts):
        return None
    variance = math.fsum(error**2 for error in errors)
    if variance == 0:
        return 0.0
    freedoms = [part.freedom for part in parts]
    welch = variance**2 / math.fsum(
        error**4 / freedom for error, freedom in zip(errors, freedoms, strict=True) if math.isfinite(freedom)
    )
    freedom = min(freedoms) if any(part.is_sequential for part in parts) else welch
    return student_t(1 - (1 - confidence) / 2, freedom) * math.sqrt(variance)
