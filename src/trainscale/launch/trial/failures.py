"""Finds why a trial failed and which rank is to blame. Pure functions, called when everything has ended."""

from __future__ import annotations

import signal
from dataclasses import replace

from ...record.trial import CRASH, LOST, OUT_OF_MEMORY, TIMEOUT, Failure
from ..connections.event_reader import HostLost
from ..connections.exit_status import describe_exit
from .rank_state import TAIL_LINES, RankState
from .state import TrialState

# A rank that fails makes the others fail too. Their messages contain these words.
_CONSEQUENCES = ("connection closed", "connection reset", "broken pipe", "left the rendezvous", "connection refused",
                 "socket closed", "remote process exited", "nccl", "connection was likely closed")  # fmt: skip


def find_failure(state: TrialState) -> Failure:
    blamed = find_blamed_rank(state)
    if state.lost_host is not None and (blamed is None or _is_consequence(blamed)):
        return _host_failure(state.lost_host)
    if blamed is not None:
        return _rank_failure(state, blamed)
    if state.hang is not None and state.hang.rank is not None:
        return replace(state.hang, tail=state.ranks[state.hang.rank].tail)
    if state.has_passed_deadline:
        slowest = state.slowest_worker
        message = f"the trial passed its time limit in {slowest.phase}, step {slowest.step}"
        return Failure(TIMEOUT, message, tail=slowest.tail)
    return Failure(LOST, "all keepers ended before the work was done")


def find_blamed_rank(state: TrialState) -> RankState | None:
    """Return the first rank that failed by itself. Memory comes first, then signals, then errors that no other rank
    caused.
    """

    def weight(rank: RankState) -> int:
        if rank.error is not None and rank.error.error == OUT_OF_MEMORY:
            return 0
        if rank.error is None and (rank.exit_code or 0) < 0:
            return 1
        return 3 if _is_consequence(rank) else 2

    return min((state.ranks[number] for number in state.failed_ranks), key=weight, default=None)


def _is_consequence(rank: RankState) -> bool:
    """Return whether the rank's error only reports the end of another rank."""
    message = rank.error.message.lower() if rank.error is not None else ""
    return any(text in message for text in _CONSEQUENCES)


def _host_failure(lost: HostLost) -> Failure:
    tail = lost.stderr_tail[-TAIL_LINES:]
    reason = f": {tail[-1]}" if tail else " without a message"
    return Failure(LOST, f"the keeper on {lost.culprit} ended{reason}", tail=tail)


def _rank_failure(state: TrialState, rank: RankState) -> Failure:
    if rank.error is not None:
        kind = rank.error.error if rank.error.error in (OUT_OF_MEMORY, CRASH) else CRASH
        return Failure(kind, f"rank {rank.rank}: {rank.error.message}", rank.rank, rank.tail)
    code = rank.exit_code or 0
    if code == -signal.SIGKILL and state.kernel_kills:
        message = f"rank {rank.rank} was ended by the kernel: out of memory"
        return Failure(OUT_OF_MEMORY, message, rank.rank, rank.tail)
    limit = state.machine.memory_limit_bytes
    if limit is not None and code:  # some frameworks abort when an allocation fails
        message = f"rank {rank.rank} {describe_exit(code)} with no more than {limit / 2**30:.1f} GiB to allocate"
        return Failure(OUT_OF_MEMORY, message, rank.rank, rank.tail)
    reason = describe_exit(code) if code else "ended without a result"
    return Failure(CRASH, f"rank {rank.rank} {reason} in {rank.position}", rank.rank, rank.tail)
