"""What must hold after a scenario. Pure functions of what was observed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .faults import HIT_HOST, HIT_HOST_OR_NONE, HIT_RANK, HIT_RANK_OR_NONE, HOST, Fault

CLEAN_SECONDS = 20.0
_ALLOCATION_ENDED = "the allocation has ended"
_INTERNAL = ("Traceback (most recent call last)", "--debug shows where")


@dataclass(frozen=True)
class Hit:
    """A fault that happened: whom it hit, and how many rows the journal had just before."""

    fault: Fault
    rows_before: int
    host: str
    rank: int | None = None
    rank_hosts: dict[int, str] = field(default_factory=dict)  # the host of each rank


@dataclass(frozen=True)
class Observation:
    """One scenario as it was seen. ``before`` are the journal's bytes at the last fault, ``after`` those at the end of
    the run, ``final`` those after the same command was typed again.
    """

    hits: Sequence[Hit]
    before: bytes
    after: bytes
    final: bytes
    exit_code: int | None  # None: it had to be killed
    output: str
    left: Sequence[str]  # what ran, was locked or grew too long after the end
    final_exit_code: int | None
    final_output: str
    trials: int


@dataclass(frozen=True)
class Violation:
    """What does not hold, and the fault to which it is attributed, by its number."""

    hit: int
    problem: str


def violations(seen: Observation) -> list[Violation]:
    """Return what does not hold. What concerns the whole run is attributed to its last fault."""
    of_run = _kept(seen)
    of_run += [f"left after the end: {line}" for line in seen.left]
    of_run += _internal_errors(seen)
    of_run += _exit_code(seen)
    of_run += _completed(seen)
    last = len(seen.hits) - 1
    return [*_causes(seen), *(Violation(last, problem) for problem in of_run)]


def complete_lines(journal: bytes) -> bytes:
    return journal[: journal.rfind(b"\n") + 1]


def rows(journal: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in complete_lines(journal).splitlines()]


def rank_hosts_of(journal: bytes) -> dict[int, str]:
    """Return the host of each worker, by the trials that were measured."""
    return {rank["rank"]: rank["host"] for row in rows(journal) for rank in row.get("ranks", ())}


def _kept(seen: Observation) -> list[str]:
    problems = []
    if not seen.after.startswith(complete_lines(seen.before)):
        problems.append("a finished trial was lost by the fault")
    if not seen.final.startswith(complete_lines(seen.after)):
        problems.append("a finished trial was lost when the run went on")
    measured = Counter(row["key"] for row in rows(seen.final) if row["status"] == "ok")
    twice = [key for key, count in measured.items() if count > 1]
    if twice:
        problems.append(f"measured twice: {', '.join(twice)}")
    return problems


def _internal_errors(seen: Observation) -> list[str]:
    text = seen.output + seen.final_output
    return [f"internal error: {_tail(text)}" for mark in _INTERNAL if mark in text][:1]


def _exit_code(seen: Observation) -> list[str]:
    if seen.exit_code is None:
        return ["the run did not end"]
    failed = any(row["status"] != "ok" for row in rows(seen.after))
    is_complete = len({row["key"] for row in rows(seen.after)}) == seen.trials
    allowed = {int(failed)} if is_complete else set()
    for hit in seen.hits:
        allowed |= set(hit.fault.exit_codes)
        if hit.fault.statuses and not rows(seen.after):
            allowed.add(1)  # a host was lost before the first trial ended
        if hit.fault.role in (HOST, "slurmstepd") and _ALLOCATION_ENDED in seen.output:
            allowed.add(130)  # Slurm ends the job of a lost host
    if seen.exit_code in allowed:
        return []
    return [f"exit code {seen.exit_code}, expected {sorted(allowed)}: {_tail(seen.output)}"]


def _causes(seen: Observation) -> list[Violation]:
    """Every row that failed must follow from the fault that came before it, and say so."""
    all_rows = rows(seen.after)
    starts = [hit.rows_before for hit in seen.hits]
    problems = [
        Violation(0, f"failed before any fault: {describe(row)}")
        for row in all_rows[: starts[0]]
        if row["status"] != "ok"
    ]
    for number, (hit, end) in enumerate(zip(seen.hits, [*starts[1:], len(all_rows)], strict=True)):
        failed = [row for row in all_rows[hit.rows_before : end] if row["status"] != "ok"]
        if len(failed) > hit.fault.most_rows:
            problems.append(Violation(number, f"{len(failed)} rows failed by it: {describe(failed[-1])}"))
        for row in failed:
            problem = _wrong_cause(hit, row)
            if problem:
                problems.append(Violation(number, f"at {hit.host}, rank {hit.rank}: {problem}: {describe(row)}"))
    return problems


def describe(row: dict[str, Any]) -> str:
    failure = row.get("failure") or {}
    return f"{row['status']}, rank {failure.get('rank')}, host {failure.get('host')}: {failure.get('message')}"


def _wrong_cause(hit: Hit, row: dict[str, Any]) -> str:
    """Return what is wrong with the cause that a row names; empty if it is right."""
    if row["status"] not in hit.fault.statuses:
        return f"the status is {row['status']}"
    failure = row.get("failure") or {}
    rank, message = failure.get("rank"), str(failure.get("message"))
    others = {*hit.rank_hosts.values()} - {hit.host}
    text = f"{message} {failure.get('host') or ''}"
    named = [host for host in sorted(others) if re.search(rf"\b{re.escape(host)}\b", text)]
    if named:
        return f"it names {', '.join(named)}"
    if hit.fault.names == HIT_RANK and (rank is None or hit.rank not in (None, rank)):
        return "it names another rank"
    if hit.fault.names == HIT_RANK_OR_NONE and rank is not None and hit.rank not in (None, rank):
        return "it names another rank"
    if hit.fault.names in (HIT_HOST, HIT_HOST_OR_NONE) and rank is not None and hit.rank_hosts.get(rank) != hit.host:
        return f"it names a rank of another host ({hit.rank_hosts})"
    if hit.fault.names == HIT_HOST and len(set(hit.rank_hosts.values())) > 1 and hit.host not in text:
        return "it does not name the host"
    return ""


def _completed(seen: Observation) -> list[str]:
    if seen.final_exit_code != 0:
        again = rows(seen.final)[len(rows(seen.after)) :]
        reasons = [describe(row) for row in again if row["status"] != "ok"] or [_tail(seen.final_output)]
        code = seen.final_exit_code
        return [f"the same command does not complete the run: exit code {code}: {' / '.join(reasons)}"]
    latest = {row["key"]: row["status"] for row in rows(seen.final)}
    if len(latest) != seen.trials or set(latest.values()) != {"ok"}:
        return [f"the same command leaves the run incomplete: {latest}"]
    return []


def _tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-4:])[-400:]
