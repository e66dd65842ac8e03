"""The search for the largest batch as a person sees it: a line for each attempt, and what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ..launch.launchers.base import Launcher
from ..launch.trial.state import TrialState
from ..record.batches import Attempt, Search
from ..record.journal import Journal
from ..run.batches import SearchListener, find_batches, label, resolved, without_room
from ..spec.config import AUTO
from ..spec.plan import Plan
from .wording import gib


def settle_batches(
    plan: Plan,
    journal: Journal,
    launcher: Launcher,
    pythons: Mapping[str, str],
    missing: Mapping[str, str],
    retry_failed: bool,
) -> Plan:
    """The plan with a batch for everything, after whatever search that takes. What fits with no batch is in the journal
    as failed. Of frameworks that are missing nothing can be searched: they are left out.
    """
    if all(config.batch != AUTO for config in plan.configs):
        return plan
    pairs = zip(plan.configs, plan.ladders, strict=True)
    kept = [(config, counts) for config, counts in pairs if config.batch != AUTO or config.framework not in missing]
    plan = replace(plan, configs=tuple(c for c, _ in kept), ladders=tuple(counts for _, counts in kept))
    with _watched() as watch:
        found = find_batches(plan, journal.directory, launcher, pythons, watch, again=retry_failed, logs=journal.logs)
    known = {record.trial.key for record in journal.records}
    for record in without_room(plan, found):
        if record.trial.key not in known:
            journal.append(record)
    return resolved(plan, found)


@contextmanager
def _watched() -> Iterator[SearchListener]:
    """On a terminal also what the attempt under way is doing."""
    from rich.console import Console

    console = Console(highlight=False)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    status = console.status("") if console.is_terminal else None
    now = ""

    def tries(search: Search, batch: int) -> None:
        nonlocal now
        now = f"batch {batch:,}"
        if status:
            status.update(now)

    def moves(state: TrialState) -> None:
        if status:
            slowest = state.slowest_worker
            status.update(f"{now}: {slowest.phase} {slowest.step or ''}")

    watch = SearchListener(
        begins=lambda search: say(opening(search)),
        tries=tries,
        moves=moves,
        tried=lambda search, attempt: say(f"  {tried(search, attempt)}"),
        ends=lambda search: say(finding(search)),
    )
    if status is None:
        yield watch
        return
    with status:
        yield watch


def opening(search: Search) -> str:
    known = f", {len(search.attempts)} attempts are known" if search.attempts else ""
    return f"{label(search.config)}: searching the largest batch that fits, at most {search.most:,}{known}"


def tried(search: Search, attempt: Attempt) -> str:
    """«batch 512 fits, 14.2 GiB», «batch 1,024: out of memory»."""
    again = sum(one.batch == attempt.batch for one in search.attempts) > 1
    if not attempt.fits:
        return f"batch {attempt.batch:,}: out of memory{' the second time' if again else ''}"
    return f"batch {attempt.batch:,} fits{' again' if again else ''}{_memory(', ', attempt)}"


def finding(search: Search) -> str:
    """One sentence: what fits, and what is known of the next."""
    largest, failing = search.largest, search.smallest_failing
    name = label(search.config)
    if largest is None:
        return f"{name}: not even a batch of 1 fits{_limit(failing)}"
    memory = _memory(" (", largest, ")")
    if failing is None:
        return f"{name}: batch {largest.batch:,} still fits{memory}; not tried further: {search.bound}"
    return (
        f"{name}: the largest batch that fits is {largest.batch:,}{memory}; {failing.batch:,} does not{_limit(failing)}"
    )


def _memory(before: str, attempt: Attempt, after: str = "") -> str:
    return f"{before}{gib(attempt.memory_bytes)}{after}" if attempt.memory_bytes is not None else ""


def _limit(attempt: Attempt | None) -> str:
    limit = attempt.memory_limit_bytes if attempt else None
    return f", where a worker may allocate {gib(limit)}" if limit else ""
