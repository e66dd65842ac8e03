"""What the workers of a trial reported to prove that they did its work, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass

from ..worker.data.seen import SamplesSeen
from .parity import PROVEN, UNPROVEN, Check

REFUTED = "refuted"


@dataclass(frozen=True)
class RankWitness:
    """What one worker reported about its first steps, its window and its closing steps."""

    losses: tuple[float | None, ...] = ()  # of the first steps; None where a loss is not finite
    total: tuple[float, ...] = ()  # the sketch of how the first steps changed its weights
    updates: int = 0  # that its weights have had since the start
    counted_updates: int | None = None  # the same by the framework's own counter; None where it has none
    unfinished_seconds: float = 0.0  # of work that its device had left when the window ended
    outer_seconds: float | None = None  # of the window by a second clock around it; None in older journals
    decay: float | None = None  # the share of the head's class sum that weight decay has left
    expected_decay: float = 1.0
    next_decay: float = 1.0  # after one more update
    closing_losses: tuple[float | None, ...] = ()  # of steps from the initial weights, after the window
    gradients: tuple[tuple[float, ...], ...] = ()  # for each two of them, the sketch of the gradient that updated them
    head_gradients: tuple[tuple[float, ...], ...] = ()  # the same of the head's weights alone
    closing_change: float = 0.0  # the length of the longest of their updates, divided by the learning rate
    obstacle: str = ""  # why its first steps cannot be compared
    seconds: float = 0.0  # that proving the work took this rank


@dataclass(frozen=True)
class SeenByRank:
    """The samples of a data set of ``train`` samples that one worker trained on."""

    rank: int
    train: int
    epochs: tuple[SamplesSeen, ...]
    flags: str = ""  # of the samples of its first epoch, as text; empty for a very large data set


@dataclass(frozen=True)
class WitnessVerdict:
    """Whether a trial did the work that it was timed for. ``reason`` says why it is not proven."""

    state: str
    reason: str = ""
    rank: int | None = None  # with the first difference
    checks: tuple[Check, ...] = ()

    @property
    def is_refuted(self) -> bool:
        return self.state == REFUTED


__all__ = ["PROVEN", "REFUTED", "UNPROVEN", "Check", "RankWitness", "WitnessVerdict"]
