"""Finds why a trial failed and which rank is to blame. Pure functions, called when everything has ended."""

from __future__ import annotations

import math
import signal
from dataclasses import replace

from ...record.trial import CRASH, LOST, OUT_OF_MEMORY, TIMEOUT, Failure
from ..events import HostLost, describe_exit
from .positions import find_behind
from .rank_state import TAIL_LINES, RankState
from .state import TrialState

# A rank that fails makes the others fail too. Their messages contain these words.
_CONSEQUENCES = ("connection closed", "connection reset", "broken pipe", "left the rendezvous", "connection refused",
                 "socket closed", "remote process exited", "nccl", "connection was likely closed")  # fmt: skip
_STILL_SECONDS = 30.0  # without progress, in which no step is merely slow


def find_failure(state: TrialState) -> Failure:
    blamed = find_blamed_rank(state)
    has_own_error = blamed is not None and not _is_consequence(blamed)
    if state.lost_host is not None and not has_own_error:
        return _describe_host_failure(state.lost_host)
    if blamed is not None and (has_own_error or not (state.hang or state.has_passed_deadline)):
        return _describe_rank_failure(state, blamed)
    if state.hang is not None:
        tail = state.ranks[state.hang.rank].tail if state.hang.rank is not None else ()
        return replace(state.hang, tail=tail)
    if state.has_passed_deadline:
        return _describe_timeout(state)
    return Failure(LOST, "all keepers ended before the work was done")


def _describe_timeout(state: TrialState) -> Failure:
    """Return a failure: how far the trial came, and which worker the others waited for, if they did so for long."""
    slowest = state.slowest_worker
    message = f"the trial passed its time limit in {slowest.phase}, step {slowest.step}"
    waiting = [rank for rank in state.workers if rank.result is None]
    still_seconds = min(state.deadlines.values()) - max((rank.last_progress for rank in waiting), default=math.inf)
    behind = find_behind(waiting, state.trial.config.device == "cpu") if still_seconds > _STILL_SECONDS else []
    if len(behind) != 1:
        return Failure(TIMEOUT, message, tail=slowest.tail)
    rank = behind[0]
    message += f"; {rank.name} had made no progress for {still_seconds:.0f} s"
    return Failure(TIMEOUT, message, rank.rank, rank.tail, rank.place.host)


def find_blamed_rank(state: TrialState) -> RankState | None:
    """Return the first rank that failed by itself, before the trial's time was over. Memory comes first, then signals,
    then errors that no other rank caused.
    """

    def weigh(rank: RankState) -> int:
        if rank.error is not None and rank.error.error == OUT_OF_MEMORY:
            return 0
        if rank.error is None and (rank.exit_code or 0) < 0:
            return 1
        return 3 if _is_consequence(rank) else 2

    failed = (state.ranks[number] for number in state.failed_ranks)
    return min(filter(state.has_failed_in_time, failed), key=weigh, default=None)


def _is_consequence(rank: RankState) -> bool:
    """Return whether the rank's error only reports the end of another rank."""
    message = rank.error.message.lower() if rank.error is not None else ""
    return any(text in message for text in _CONSEQUENCES)


def _describe_host_failure(lost: HostLost) -> Failure:
    tail = lost.stderr_tail[-TAIL_LINES:]
    if not lost.culprit:
        return Failure(LOST, tail[-1] if tail else "the command that had started the keepers ended", tail=tail)
    reason = f": {tail[-1]}" if tail else " without a message"
    return Failure(LOST, f"the keeper on {lost.culprit} ended{reason}", tail=tail, host=lost.culprit)


def _describe_rank_failure(state: TrialState, rank: RankState) -> Failure:
    kind, message = _explain_rank(state, rank)
    return Failure(kind, message, rank.rank, rank.tail, rank.place.host)


def _explain_rank(state: TrialState, rank: RankState) -> tuple[str, str]:
    """Return the kind of the rank's failure, and a message."""
    if rank.error is not None:
        kind = rank.error.error if rank.error.error in (OUT_OF_MEMORY, CRASH) else CRASH
        return kind, f"{rank.name}: {rank.error.message}"
    code = rank.exit_code or 0
    if code == -signal.SIGKILL and state.kernel_kills:
        return OUT_OF_MEMORY, f"{rank.name} was ended by the kernel: out of memory"
    limit = state.machine.memory_limit_bytes
    if limit is not None and code:  # some frameworks abort when an allocation fails
        return OUT_OF_MEMORY, f"{rank.name} {describe_exit(code)} with no more than {limit / 2**30:.1f} GiB to allocate"
    reason = describe_exit(code) if code else "ended without a result"
    return CRASH, f"{rank.name} {reason} in {rank.position}"
