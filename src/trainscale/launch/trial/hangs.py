"""Finds ranks that hang: they are silent, or no worker makes progress, for too long. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from ...record.trial import HANG, Failure
from .positions import find_behind
from .rank_state import RankState
from .state import TrialState

_MEETING_PHASES = ("start", "join", "first step")  # in which ranks wait for the first message of others
# Frameworks compile in their first step, which may take minutes for a deep network on a slow core.
_FIRST_STEP_PATIENCE = 4
_HEARTBEATS_APART = 2.0  # seconds between the last heartbeats of ranks that became silent together
_NAMED_RANKS = 4  # that a message lists


def find_hang(state: TrialState, stall_seconds: float, now: float) -> Failure | None:
    """Return the failure of ranks that hang now, or None."""
    alive = [rank for rank in state.ranks if rank.exit_code is None]
    if any(now - rank.last_event > stall_seconds for rank in alive):
        return _describe_silence(state, alive, stall_seconds, now)
    waiting = [rank for rank in state.workers if rank.result is None]
    if not waiting or any(now - rank.last_progress <= _compute_patience(rank, stall_seconds) for rank in waiting):
        return None
    return _describe_standstill(state, waiting, now)


def _compute_patience(rank: RankState, stall_seconds: float) -> float:
    return stall_seconds * (_FIRST_STEP_PATIENCE if rank.phase == "first step" else 1)


def _describe_silence(state: TrialState, alive: Sequence[RankState], stall_seconds: float, now: float) -> Failure:
    """Return a failure that names the silent ranks, or their host if all of its ranks became silent together."""
    silent = [rank for rank in alive if now - rank.last_event > stall_seconds - _HEARTBEATS_APART]
    seconds = max(now - rank.last_event for rank in silent)
    host = silent[0].place.host
    of_host = [rank for rank in alive if rank.place.host == host]
    if host and len(silent) > 1 and silent == of_host:
        names = ", ".join(str(rank.rank) for rank in silent[:_NAMED_RANKS])
        more = ", …" if len(silent) > _NAMED_RANKS else ""
        message = f"{host} with its ranks {names}{more} was silent for {seconds:.0f} s in {silent[0].position}"
        return Failure(HANG, message + _make_hint(state, silent[0]), host=host)
    return _make_failure(state, silent, f"{'were' if len(silent) > 1 else 'was'} silent for {seconds:.0f} s")


def _describe_standstill(state: TrialState, waiting: Sequence[RankState], now: float) -> Failure:
    """Return a failure that names the workers that the others wait for, if that can be known."""
    behind = find_behind(waiting, state.trial.config.device == "cpu")
    seconds = now - max(rank.last_progress for rank in waiting)
    if not behind:
        first = waiting[0]
        message = f"no worker made progress for {seconds:.0f} s in {first.position}; which of them hangs is unknown"
        return Failure(HANG, message + _make_hint(state, first))
    return _make_failure(state, behind, f"made no progress for {now - behind[0].last_progress:.0f} s")


def _make_failure(state: TrialState, ranks: Sequence[RankState], problem: str) -> Failure:
    """Return the failure of these ranks. Only a single one is blamed by its number."""
    first, *others = ranks
    names = ", ".join(rank.name for rank in ranks[:_NAMED_RANKS])
    more = f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
    where = f" at {first.calls[-1]}" if first.calls else ""
    message = f"{names}{more} {problem} in {first.position}{where}{_make_hint(state, first)}"
    hosts = {rank.place.host for rank in ranks}
    return Failure(HANG, message, None if others else first.rank, host=hosts.pop() if len(hosts) == 1 else "")


def _make_hint(state: TrialState, rank: RankState) -> str:
    """Return a hint for ranks that cannot reach each other: they wait silently, mostly because of a firewall."""
    if state.hosts == 1 or rank.phase not in _MEETING_PHASES:
        return ""
    return "; do the hosts reach each other's ports? see: trainscale check --hosts FILE"
