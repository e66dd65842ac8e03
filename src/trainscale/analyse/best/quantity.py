"""What candidates are compared by: products and quotients of estimates, such as a speed, an efficiency or a cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..statistics import CONFIDENCE, Estimate, Interval, make_estimate, mean_interval, ratio


@dataclass(frozen=True)
class Quantity:
    """A positive quantity: a factor times some estimates, divided by others."""

    numerators: tuple[Estimate, ...]
    denominators: tuple[Estimate, ...] = ()
    factor: float = 1.0

    @property
    def value(self) -> float:
        tops, bottoms = ((part.mean for part in parts) for parts in (self.numerators, self.denominators))
        return self.factor * math.prod(tops) / math.prod(bottoms)

    def scaled(self, factor: float) -> Quantity:
        return replace(self, factor=self.factor * factor)

    def inverted(self) -> Quantity:
        return Quantity(self.denominators, self.numerators, 1 / self.factor)

    def compute_interval(self, error: float = 1 - CONFIDENCE) -> Interval:
        """Return the interval that misses the true value with probability ``error``."""
        return ratio(self.numerators, self.denominators, 1 - error).scaled(self.factor)


def estimate_mean(values: Sequence[float], sequential: bool = False) -> Quantity:
    """Return the mean of positive run means. ``sequential``: the values themselves decided how many there are."""
    return Quantity((make_estimate(mean_interval(values, sequential), len(values), sequential),))


def estimate_ratio(top: Quantity, bottom: Quantity) -> Quantity:
    """Return the ratio of two independent quantities."""
    other = bottom.inverted()
    numerators, denominators = top.numerators + other.numerators, top.denominators + other.denominators
    return Quantity(numerators, denominators, top.factor * other.factor)
