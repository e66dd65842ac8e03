"""Estimates that can be compared at any level: a product of means, with the relative variance of each mean.

Ratios have Welch's t interval on the log scale, as in statistics.py. There the level is always 95 %; here it depends on
how many candidates are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from ..statistics import CONFIDENCE, LEAST_REPEATS, Interval, sequential_factor, student_t


@dataclass(frozen=True)
class Estimate:
    """A positive quantity. Each term is the relative variance of one of its means, with its degrees of freedom."""

    value: float
    terms: tuple[tuple[float, int], ...]
    repeats: int  # the fewest values behind any of its means

    def scaled(self, factor: float) -> Estimate:
        return replace(self, value=self.value * factor)

    def inverted(self) -> Estimate:
        return replace(self, value=1 / self.value)

    def interval(self, error: float = 1 - CONFIDENCE) -> Interval:
        """Return the interval that misses the true value with probability ``error``."""
        if self.repeats < LEAST_REPEATS:
            return Interval(self.value)
        reach = math.exp(_reach(self.terms, error))
        return Interval(self.value, self.value / reach, self.value * reach)


def estimate_mean(values: Sequence[float], sequential: bool = False) -> Estimate:
    """Return the mean of positive run means. ``sequential``: the values themselves decided how many there are."""
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, (), count)
    factor = sequential_factor(count) if sequential else 1.0
    return Estimate(mean, ((factor**2 * variance(values, mean) / count / mean**2, count - 1),), count)


def estimate_ratio(top: Estimate, bottom: Estimate) -> Estimate:
    """Return the ratio of two independent estimates."""
    return Estimate(top.value / bottom.value, top.terms + bottom.terms, min(top.repeats, bottom.repeats))


def _reach(terms: Sequence[tuple[float, int]], error: float) -> float:
    """Return half the interval of a log, with Welch's degrees of freedom."""
    total = math.fsum(term for term, _ in terms)
    if total == 0:
        return 0.0
    freedom = total**2 / math.fsum(term**2 / count for term, count in terms)
    return student_t(1 - error / 2, freedom) * math.sqrt(total)
