"""Intervals of quantities that depend on several points: a bootstrap over the run means of each point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ..statistics import CONFIDENCE, LEAST_REPEATS, Interval, student_t
from .runs import RunMean

if TYPE_CHECKING:
    import numpy as np

DRAWS = 2000
_SEED = 20261116
_NORMAL_QUANTILE = 1.959963984540054

Means = Mapping[str, RunMean]  # by the name of the point; each value is a number, or an array of draws
Quantity = Callable[[Means], Any]


class Resampled:
    """The run means of several points, by name, and the same draws of their repeats for every quantity."""

    def __init__(self, runs: Mapping[str, Sequence[RunMean]]) -> None:
        import numpy as np

        random = np.random.default_rng(_SEED)
        self.means: dict[str, RunMean] = {}
        self._draws: dict[str, RunMean] = {}
        self._fewest = min(map(len, runs.values()))
        for name, of_point in runs.items():
            table = np.array([astuple(run) for run in of_point])
            chosen = random.integers(len(of_point), size=(DRAWS, len(of_point)))
            self.means[name] = RunMean(*map(float, table.mean(axis=0)))
            self._draws[name] = RunMean(*np.moveaxis(table[chosen].mean(axis=1), -1, 0))

    def compute_interval(self, quantity: Quantity) -> Interval:
        """Return the quantity of the means, with an interval if every point has at least three repeats.

        The limits of a bootstrap are too close together where repeats are few. They are moved apart by the factor that
        makes the interval of a plain mean that of Student's t.
        """
        import numpy as np

        centre = float(quantity(self.means))
        if self._fewest < LEAST_REPEATS:
            return Interval(centre)
        values: np.ndarray[Any, Any] = np.asarray(quantity(self._draws))
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(values, (tail, 1 - tail))
        factor = _compute_small_sample_factor(self._fewest)
        return Interval(centre, centre + factor * (float(low) - centre), centre + factor * (float(high) - centre))


def _compute_small_sample_factor(repeats: int) -> float:
    quantile = student_t(1 - (1 - CONFIDENCE) / 2, repeats - 1)
    return quantile / _NORMAL_QUANTILE * math.sqrt(repeats / (repeats - 1))
