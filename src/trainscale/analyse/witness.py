"""What the first steps of a trial must have computed, and whether they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Expectation:
    """What a correct trial computes in its first steps, by the reference network (worker/witness/).

    A sketch is 64 numbers (worker/witness/sketch.py). Spreads say how far a correct computation in the timed precision
    may be from the exact one: the difference relative to the expected value, with the samples of rank 0.
    """

    losses: tuple[tuple[float, ...], ...]  # of each step, the loss of each worker; asynchronous servers: one step
    sketches: Mapping[str, tuple[float, ...]]  # the change of each tensor of the last worker, after the last step
    totals: tuple[tuple[float, ...], ...]  # the change of all tensors: one sketch for all workers, or one for each
    loss_spreads: tuple[float, ...]  # of each step
    spreads: Mapping[str, float]  # of each tensor
    total_spread: float
    arithmetic: str = "fp64"  # of the reference; fp32 where there was no memory for fp64

    def total_of(self, rank: int) -> tuple[float, ...]:
        """Return the change of all weights that a worker sees after its last step.

        With asynchronous servers, that is after its own turn.
        """
        return self.totals[rank] if len(self.totals) > 1 else self.totals[0]
