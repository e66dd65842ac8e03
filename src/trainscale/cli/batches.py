"""Shows the search for the largest batch: a line for each attempt, and the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..launch.trial.state import TrialState
from ..measure.batches import SearchListener, describe_config
from ..record.batches import Attempt, Search
from ..report.numbers import format_gibibytes


@contextmanager
def show_search() -> Iterator[SearchListener]:
    """Print a line for each attempt. A terminal also shows what the attempt under way is doing."""
    from rich.console import Console

    console = Console(highlight=False)

    def show(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    status = console.status("") if console.is_terminal else None
    current = ""

    def attempt_begins(search: Search, batch: int) -> None:
        nonlocal current
        current = f"batch {batch:,}"
        if status:
            status.update(current)

    def attempt_moves(state: TrialState) -> None:
        if status:
            slowest = state.slowest_worker
            status.update(f"{current}: {slowest.phase} {slowest.step or ''}")

    listener = SearchListener(
        search_begins=lambda search: show(describe_start(search)),
        attempt_begins=attempt_begins,
        attempt_moves=attempt_moves,
        attempt_ends=lambda search, attempt: show(f"  {describe_attempt(search, attempt)}"),
        search_ends=lambda search: show(describe_result(search)),
    )
    if status is None:
        yield listener
        return
    with status:
        yield listener


def describe_start(search: Search) -> str:
    known = f", {len(search.attempts)} attempts are known" if search.attempts else ""
    return f"{describe_config(search.config)}: searching the largest batch that fits, at most {search.most:,}{known}"


def describe_attempt(search: Search, attempt: Attempt) -> str:
    """Return «batch 512 fits, 14.2 GiB» or «batch 1,024: out of memory»."""
    is_second = sum(other.batch == attempt.batch for other in search.attempts) > 1
    if not attempt.fits:
        return f"batch {attempt.batch:,}: out of memory{' the second time' if is_second else ''}"
    memory = f", {format_gibibytes(attempt.memory_bytes)}" if attempt.memory_bytes is not None else ""
    return f"batch {attempt.batch:,} fits{' again' if is_second else ''}{memory}"


def describe_result(search: Search) -> str:
    """Say which batch fits, and which larger one does not."""
    largest, failing = search.largest, search.smallest_failing
    name = describe_config(search.config)
    if largest is None:
        return f"{name}: not even a batch of 1 fits{_describe_memory_limit(failing)}"
    memory = f" ({format_gibibytes(largest.memory_bytes)})" if largest.memory_bytes is not None else ""
    if failing is None:
        return f"{name}: batch {largest.batch:,} still fits{memory}; not tried further: {search.bound}"
    return (
        f"{name}: the largest batch that fits is {largest.batch:,}{memory};"
        f" {failing.batch:,} does not{_describe_memory_limit(failing)}"
    )


def _describe_memory_limit(attempt: Attempt | None) -> str:
    limit = attempt.memory_limit_bytes if attempt else None
    return f", where a worker may allocate {format_gibibytes(limit)}" if limit else ""
