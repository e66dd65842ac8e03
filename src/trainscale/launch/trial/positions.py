"""Finds the workers that are behind when no worker makes progress. Pure functions.

All workers run the same program, and those that wait for another are in an exchange. So the worker that hangs has
taken fewer steps, or is at an earlier line of the same function. Where all are at the same place in a framework's
code, a worker that computes while the others are idle is the one that they wait for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .rank_state import RankState

_RENDEZVOUS = "rendezvous.py:"  # a call in this file waits for other workers
_BUSY_CORES, _IDLE_CORES = 0.5, 0.1


def find_behind(workers: Sequence[RankState], are_on_cpus: bool) -> list[RankState]:
    """Return the workers that all others wait for; none if that cannot be known."""
    if len(workers) == 1:
        return list(workers)
    by_place: dict[tuple[str, int, tuple[str, ...]], list[RankState]] = {}
    for worker in workers:
        by_place.setdefault((worker.phase, worker.step, worker.calls), []).append(worker)
    groups = [group for group in by_place.values() if not _waits(group[0])]
    if len(groups) == 1 and len(by_place) > 1:
        return groups[0]
    behind = [group for group in groups if _is_behind_all(group[0], groups)]
    if behind:
        return behind[0]
    return _find_busy(workers) if are_on_cpus and len(by_place) == 1 else []


def _waits(worker: RankState) -> bool:
    """Return whether the worker waits where trainscale has the workers meet."""
    return any(call.startswith(_RENDEZVOUS) for call in worker.calls)


def _is_behind_all(worker: RankState, groups: Sequence[Sequence[RankState]]) -> bool:
    others = [group[0] for group in groups if group[0] is not worker]
    return bool(others) and all(_compare(worker, other) < 0 for other in others)


def _compare(first: RankState, second: RankState) -> int:
    """Return a negative number if the first worker is behind the second, a positive one if it is ahead, else 0."""
    if first.phase == second.phase and first.step != second.step:
        return first.step - second.step
    for call, other_call in zip(first.calls, second.calls, strict=False):
        if call != other_call:
            (function, line), (other_function, other_line) = _read_call(call), _read_call(other_call)
            return line - other_line if function == other_function else 0
    return 0


def _read_call(call: str) -> tuple[str, int]:
    """Return file and function, and the line."""
    match = re.fullmatch(r"(.*):(\d+) (.*)", call)
    return (f"{match[1]} {match[3]}", int(match[2])) if match else (call, 0)


def _find_busy(workers: Sequence[RankState]) -> list[RankState]:
    """Return the only worker that computes, if all others are idle. A worker with a GPU may be busy while it waits."""
    busy = [worker for worker in workers if worker.busy_cores > _BUSY_CORES]
    idle = [worker for worker in workers if worker.busy_cores < _IDLE_CORES]
    return busy if len(busy) == 1 and len(idle) == len(workers) - 1 else []
