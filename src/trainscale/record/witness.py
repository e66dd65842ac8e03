"""The verdict on what the workers of a trial reported to prove that they did its work."""

from __future__ import annotations

from dataclasses import dataclass

from .parity import PROVEN, UNPROVEN, Check

REFUTED = "refuted"


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


__all__ = ["PROVEN", "REFUTED", "UNPROVEN", "Check", "WitnessVerdict"]
