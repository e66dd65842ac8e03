"""Finds a rank that hangs: it is silent, or no worker makes progress, for too long. A pure function."""

from __future__ import annotations

from ...record.trial import HANG, Failure
from .rank_state import RankState
from .state import TrialState

_MEETING_PHASES = ("start", "join", "first step")  # in which ranks wait for the first message of others
# Frameworks compile in their first step, which may take minutes for a deep network on a slow core.
_FIRST_STEP_PATIENCE = 4


def find_hang(state: TrialState, stall_seconds: float, now: float) -> Failure | None:
    """Return the failure of a rank that hangs now, or None."""
    for rank in state.ranks:
        silence = now - rank.last_event
        if rank.exit_code is None and silence > stall_seconds:
            return _failure(state, rank, f"was silent for {silence:.0f} s")
    waiting = [rank for rank in state.workers if rank.result is None]
    if not waiting or any(now - rank.last_progress <= _patience(rank, stall_seconds) for rank in waiting):
        return None
    slowest = min(waiting, key=lambda rank: rank.step)
    return _failure(state, slowest, f"made no progress for {now - slowest.last_progress:.0f} s")


def _patience(rank: RankState, stall_seconds: float) -> float:
    return stall_seconds * (_FIRST_STEP_PATIENCE if rank.phase == "first step" else 1)


def _failure(state: TrialState, rank: RankState, problem: str) -> Failure:
    return Failure(HANG, f"rank {rank.rank} {problem} in {rank.position}{_hint(state, rank)}", rank.rank)


def _hint(state: TrialState, rank: RankState) -> str:
    """Ranks that cannot reach each other wait silently, mostly because a firewall drops their messages."""
    if state.hosts == 1 or rank.phase not in _MEETING_PHASES:
        return ""
    return "; do the hosts reach each other's ports? see: trainscale check --hosts FILE"
