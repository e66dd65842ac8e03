"""What a run shows: tables and lines for people, only its directory with --quiet, events for programs with --json."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from ..errors import InputError
from ..measure.batches import SearchListener
from ..measure.measure import RunListener
from ..record.journal import Journal
from ..record.parity import read_parity
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..spec.plan import Plan
from .batches import describe_result, show_search
from .parser import Parser


class RunView(Protocol):
    """Shows a run from its start to its end. Warnings and errors go to standard error, whatever the view is."""

    def show_message(self, line: str) -> None: ...

    def show_batches(self) -> AbstractContextManager[SearchListener]:
        """Show the search for the largest batches."""

    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> AbstractContextManager[RunListener]: ...

    def show_results(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord]) -> None: ...

    def show_explanation(self, run: RunInfo, records: Sequence[TrialRecord]) -> None: ...

    def end(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord], exit_code: int) -> None: ...


class TextView:
    def show_message(self, line: str) -> None:
        print(line, flush=True)

    def show_batches(self) -> AbstractContextManager[SearchListener]:
        return show_search()

    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> AbstractContextManager[RunListener]:
        from .live import show_progress

        return show_progress(plan, journal, retry_failed)

    def show_results(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        from .results import print_results

        print_results(directory, records, read_parity(directory), run)

    def show_explanation(self, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        from ..questions.explain.explain import explain_records, make_explaining_command
        from ..questions.explain.text import render_text

        if points := explain_records(records):
            print(render_text(points, make_explaining_command(run)), end="")

    def end(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord], exit_code: int) -> None:
        return


class QuietView:
    """Prints the directory of the results, and nothing else."""

    def show_message(self, line: str) -> None:
        return

    @contextmanager
    def show_batches(self) -> Iterator[SearchListener]:
        yield SearchListener()

    @contextmanager
    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> Iterator[RunListener]:
        yield RunListener()

    def show_results(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        return

    def show_explanation(self, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        return

    def end(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord], exit_code: int) -> None:
        print(directory)


class JsonView:
    def __init__(self) -> None:
        from .event_stream import EventStream

        self._events = EventStream(sys.stdout)

    def show_message(self, line: str) -> None:
        self._events.write("message", message=line)

    @contextmanager
    def show_batches(self) -> Iterator[SearchListener]:
        yield SearchListener(search_ends=lambda search: self.show_message(describe_result(search)))

    @contextmanager
    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> Iterator[RunListener]:
        from .live import RunProgress

        progress = RunProgress(plan, journal)
        self._events.begin(progress, str(journal.directory))
        yield self._events.make_listener(progress)

    def show_results(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        return

    def show_explanation(self, run: RunInfo, records: Sequence[TrialRecord]) -> None:
        return

    def end(self, directory: Path, run: RunInfo, records: Sequence[TrialRecord], exit_code: int) -> None:
        self._events.end(str(directory), run, records, exit_code)


def add_view_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print events as JSON, one per line, for other programs")
    parser.add_argument("--quiet", action="store_true", help="print only the directory of the results, and errors")


def choose_view(options: Namespace) -> RunView:
    check_view_flags(options)
    if options.json:
        return JsonView()
    return QuietView() if options.quiet else TextView()


def check_view_flags(options: Namespace) -> None:
    if options.json and options.quiet:
        raise InputError("--json and --quiet exclude each other")
