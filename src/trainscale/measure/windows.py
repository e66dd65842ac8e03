"""Decides how many steps a window has where the results decide how often to repeat. Pure.

A longer window makes a run mean steadier, but only as far as steps vary within a process; a further process costs its
start again. With what a trial costs besides its window C, a step c, and the variances of steps within processes V and
of run means between processes B, the product of cost and variance is least for √(C/c · V/B) steps (Kalibera and Jones,
Rigorous benchmarking in reasonable time, 2013).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

LEAST_STEPS = 5  # of a window
_LEAST_FREEDOM = 3  # repeats beyond the first of each point, before the variance between processes is estimated
_LEAST_BETWEEN = 0.001**2  # no machine repeats its speed more closely than by 0.1 %
_STEPS_IN_BLOCKS = 20  # shorter windows are not cut into blocks
_CHEAP_WARMUP = 0.1  # of what a trial costs besides its window: below that, warm-up is never shortened
_WARMUP_SHARE = 0.25  # of the steps of the window
_LEAST_WARMUP = 2


@dataclass(frozen=True)
class TrialTimes:
    """What a trial took in all, in its window, and in each step of it. The window may have been long or short."""

    seconds: float
    window_seconds: float
    steps: Sequence[float]

    @property
    def overhead_seconds(self) -> float:
        """All that it cost besides its window: start, warm-up, proofs, end."""
        return max(0.0, self.seconds - self.window_seconds)

    @property
    def step_seconds(self) -> float:
        return self.window_seconds / len(self.steps)


@dataclass(frozen=True)
class StepCounts:
    warmup: int
    steps: int


def choose_counts(
    own: Sequence[TrialTimes], points: Iterable[Sequence[TrialTimes]], most: StepCounts
) -> StepCounts | None:
    """Return how many steps the next trial of a point takes, at most ``most``; None while too little is known.

    ``own`` are the point's trials, ``points`` those of all points of its ladder: how steps vary is alike at all of
    them.
    """
    ratio = compute_variance_ratio(points)
    own = [trial for trial in own if trial.steps and trial.window_seconds > 0]
    if ratio is None or not own:
        return None
    overhead = median(trial.overhead_seconds for trial in own)
    step = median(trial.step_seconds for trial in own)
    steps = round(math.sqrt(overhead / step * ratio))
    steps = min(most.steps, max(LEAST_STEPS, steps))
    is_cheap = most.warmup * step <= _CHEAP_WARMUP * overhead
    warmup = most.warmup if is_cheap else min(most.warmup, max(_LEAST_WARMUP, round(_WARMUP_SHARE * steps)))
    return StepCounts(warmup, steps)


def compute_variance_ratio(points: Iterable[Sequence[TrialTimes]]) -> float | None:
    """Return the variance of steps within a process over that of run means between processes.

    Both are relative to the mean. None while there are too few repeats to know.
    """
    within: list[float] = []
    excess, freedom = 0.0, 0
    for trials in points:
        own = [(trial, value) for trial in trials if (value := compute_within_variance(trial.steps)) is not None]
        within += [value for _, value in own]
        if len(own) < 2:
            continue
        means = [trial.step_seconds for trial, _ in own]
        spread = variance(means) / fmean(means) ** 2
        by_chance = fmean(value / len(trial.steps) for trial, value in own)
        excess += (len(own) - 1) * (spread - by_chance)
        freedom += len(own) - 1
    if freedom < _LEAST_FREEDOM:
        return None
    return fmean(within) / max(_LEAST_BETWEEN, excess / freedom)


def compute_within_variance(steps: Sequence[float]) -> float | None:
    """Return the variance of a step relative to its mean, such that a mean of m steps has 1/m of it.

    Steps in a row are alike. So means of blocks are compared, which vary more than independent steps would.
    """
    if len(steps) < 2:
        return None
    block = math.isqrt(len(steps)) if len(steps) >= _STEPS_IN_BLOCKS else 1
    means = [fmean(steps[start : start + block]) for start in range(0, len(steps) - block + 1, block)]
    return block * variance(means) / fmean(steps) ** 2
