"""Finds why a trial failed and which rank is to blame: ranks that hang while it runs, and everything else when all has
ended. Pure functions.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import replace

from ...record.trial import CRASH, HANG, LOST, OUT_OF_MEMORY, TIMEOUT, Failure
from ..events import describe_exit
from .state import TAIL_LINES, RankState, TrialState

# A rank that fails makes the others fail too. Their messages contain these words.
_CONSEQUENCES = ("connection closed", "connection reset", "broken pipe", "left the rendezvous", "connection refused",
                 "socket closed", "remote process exited", "nccl", "connection was likely closed")  # fmt: skip
_STILL_SECONDS = 30.0  # without progress, in which no step is merely slow
_MEETING_PHASES = ("start", "join", "first step")  # in which ranks wait for the first message of others
# Frameworks compile in their first step, which may take minutes for a deep network on a slow core.
_FIRST_STEP_PATIENCE = 4
_HEARTBEATS_APART = 2.0  # seconds between the last heartbeats of ranks that became silent together
_NAMED_RANKS = 4  # that a message lists
_BUSY_CORES, _IDLE_CORES = 0.5, 0.1
_RENDEZVOUS = "rendezvous.py:"  # a call in this file waits for other workers

# ---- ranks that hang


def find_hang(state: TrialState, stall_seconds: float, now: float) -> Failure | None:
    """Return the failure of ranks that hang now, or None. It names the ranks that the others wait for, or their host,
    if that can be known.
    """
    alive = [rank for rank in state.ranks if rank.exit_code is None]
    if any(now - rank.last_event > stall_seconds for rank in alive):
        silent = [rank for rank in alive if now - rank.last_event > stall_seconds - _HEARTBEATS_APART]
        seconds = max(now - rank.last_event for rank in silent)
        host = silent[0].place.host
        if host and len(silent) > 1 and silent == [rank for rank in alive if rank.place.host == host]:
            names = ", ".join(str(rank.rank) for rank in silent[:_NAMED_RANKS])
            more = ", …" if len(silent) > _NAMED_RANKS else ""
            message = f"{host} with its ranks {names}{more} was silent for {seconds:.0f} s in {silent[0].position}"
            return Failure(HANG, message + _make_hint(state, silent[0]), host=host)
        return _make_failure(state, silent, f"{'were' if len(silent) > 1 else 'was'} silent for {seconds:.0f} s")
    waiting = [rank for rank in state.workers if rank.result is None]
    for rank in waiting:
        patience = stall_seconds * (_FIRST_STEP_PATIENCE if rank.phase == "first step" else 1)
        if now - rank.last_progress <= patience:
            return None
    if not waiting:
        return None
    behind = _find_behind(waiting, state.trial.config.device == "cpu")
    if behind:
        return _make_failure(state, behind, f"made no progress for {now - behind[0].last_progress:.0f} s")
    first, seconds = waiting[0], now - max(rank.last_progress for rank in waiting)
    message = f"no worker made progress for {seconds:.0f} s in {first.position}; which of them hangs is unknown"
    return Failure(HANG, message + _make_hint(state, first))


def _make_failure(state: TrialState, ranks: Sequence[RankState], problem: str) -> Failure:
    first, *others = ranks
    names = ", ".join(rank.name for rank in ranks[:_NAMED_RANKS])
    more = f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
    where = f" at {first.calls[-1]}" if first.calls else ""
    message = f"{names}{more} {problem} in {first.position}{where}{_make_hint(state, first)}"
    hosts = {rank.place.host for rank in ranks}
    return Failure(HANG, message, None if others else first.rank, host=hosts.pop() if len(hosts) == 1 else "")


def _make_hint(state: TrialState, rank: RankState) -> str:
    """Return a hint for ranks that cannot reach each other, mostly because of a firewall."""
    if state.hosts == 1 or rank.phase not in _MEETING_PHASES:
        return ""
    return "; do the hosts reach each other's ports? see: trainscale check --hosts FILE"


def _find_behind(workers: Sequence[RankState], are_on_cpus: bool) -> list[RankState]:
    """Return the workers that all others wait for: they have taken fewer steps, or all others wait where trainscale has
    the workers meet, or most share another call stack. Otherwise, on CPUs, it is one that computes while all others
    are idle.
    """
    if len(workers) == 1:
        return list(workers)
    groups: dict[tuple[str, int, tuple[str, ...]], list[RankState]] = {}
    for worker in workers:
        groups.setdefault((worker.phase, worker.step, worker.calls), []).append(worker)
    apart = [group for group in groups.values() if not any(call.startswith(_RENDEZVOUS) for call in group[0].calls)]
    if len(apart) == 1 and len(groups) > 1:
        return apart[0]
    if len({group[0].phase for group in apart}) == 1:
        fewest = min(group[0].step for group in apart)
        behind = [worker for group in apart for worker in group if worker.step == fewest]
        if len(behind) < sum(map(len, apart)):
            return behind
    if len(groups) == 2 and len(workers) > 2:
        smaller, larger = sorted(groups.values(), key=len)
        return smaller if len(smaller) < len(larger) else []
    if not are_on_cpus:
        return []
    busy = [worker for worker in workers if worker.busy_cores > _BUSY_CORES]
    idle = [worker for worker in workers if worker.busy_cores < _IDLE_CORES]
    return busy if len(busy) == 1 and len(idle) == len(workers) - 1 else []


# ---- failures of a trial that has ended


def find_failure(state: TrialState) -> Failure:
    """Return why the trial failed: a rank's own error, a lost host, a hang, or its deadline."""
    blamed = find_blamed_rank(state)
    has_own_error = blamed is not None and not _is_consequence(blamed)
    lost = state.lost_host
    if lost is not None and not has_own_error:
        tail = lost.stderr_tail[-TAIL_LINES:]
        if not lost.culprit:
            return Failure(LOST, tail[-1] if tail else "the command that had started the keepers ended", tail=tail)
        reason = f": {tail[-1]}" if tail else " without a message"
        return Failure(LOST, f"the keeper on {lost.culprit} ended{reason}", tail=tail, host=lost.culprit)
    if blamed is not None and (has_own_error or not (state.hang or state.deadlines)):
        kind, message = _explain_rank(state, blamed)
        return Failure(kind, message, blamed.rank, blamed.tail, blamed.place.host)
    if state.hang is not None:
        if state.hang.rank is None:
            return state.hang
        rank = state.ranks[state.hang.rank]
        stack = ("call stack, outermost frame first:", *rank.calls) if rank.calls else ()
        return replace(state.hang, tail=(*rank.tail, *stack))
    if not state.deadlines:
        return Failure(LOST, "all keepers ended before the work was done")
    # Say how far the trial came, and which worker the others waited for, if they did so for long.
    slowest = state.slowest_worker
    message = f"the trial passed its time limit in {slowest.phase}, step {slowest.step}"
    waiting = [rank for rank in state.workers if rank.result is None]
    still_seconds = min(state.deadlines.values()) - max((rank.last_progress for rank in waiting), default=math.inf)
    behind = _find_behind(waiting, state.trial.config.device == "cpu") if still_seconds > _STILL_SECONDS else []
    if len(behind) != 1:
        return Failure(TIMEOUT, message, tail=slowest.tail)
    rank = behind[0]
    message += f"; {rank.name} had made no progress for {still_seconds:.0f} s"
    return Failure(TIMEOUT, message, rank.rank, rank.tail, rank.place.host)


def find_blamed_rank(state: TrialState) -> RankState | None:
    """Return the first rank that failed by itself in time; memory comes before signals and errors."""

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


def _explain_rank(state: TrialState, rank: RankState) -> tuple[str, str]:
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
