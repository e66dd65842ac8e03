"""What a run shows: tables and lines for people, only its directory with --quiet, events for programs with --json."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext

from ..errors import InputError
from ..measure.batches import SearchListener
from ..measure.measure import RunListener, RunView
from ..record.journal import Journal
from ..runs import Run
from ..spec.plan import Plan
from .batches import describe_result, show_search
from .parser import Parser


class CommandView(RunView):
    """What the views of the command have in common: how they end."""

    exit_code = 0
    explains = False  # whether to show where the efficiency went
    prints_summary = False  # whether to print the lines of --summary-line

    def show_results(self, run: Run) -> None:
        return

    def show_explanation(self, run: Run) -> None:
        return

    def end(self, run: Run, interruption: str | None, exit_code: int) -> None:
        self.exit_code = exit_code
        self.show_results(run)
        if interruption is not None:
            count = len(run.records)
            kept = f"{count} finished trial{'s are' if count != 1 else ' is'} kept"
            reason = f": {interruption}" if interruption else ""
            self.show_message(f"stopped{reason}; {kept}; the same command continues")
        elif self.explains:
            self.show_explanation(run)
        if self.prints_summary:
            from .results import print_summary_lines

            print_summary_lines(run.directory)


class TextView(CommandView):
    def show_message(self, line: str) -> None:
        print(line, flush=True)

    def show_batches(self) -> AbstractContextManager[SearchListener]:
        return show_search()

    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> AbstractContextManager[RunListener]:
        from .live import show_progress

        return show_progress(plan, journal, retry_failed)

    def show_results(self, run: Run) -> None:
        from .results import print_results

        print_results(run.directory, run.records, run.parity, run.info)

    def show_explanation(self, run: Run) -> None:
        from ..questions.explain.explain import explain_records, make_explaining_command
        from ..questions.explain.text import render_text

        if points := explain_records(run.records):
            print(render_text(points, make_explaining_command(run.info)), end="")


class QuietView(CommandView):
    """Prints the directory of the results, and nothing else."""

    def end(self, run: Run, interruption: str | None, exit_code: int) -> None:
        super().end(run, interruption, exit_code)
        print(run.directory)


class JsonView(CommandView):
    def __init__(self) -> None:
        from .event_stream import EventStream

        self._events = EventStream(sys.stdout)

    def show_message(self, line: str) -> None:
        self._events.write("message", message=line)

    def show_batches(self) -> AbstractContextManager[SearchListener]:
        return nullcontext(SearchListener(search_ends=lambda search: self.show_message(describe_result(search))))

    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> AbstractContextManager[RunListener]:
        from .live import RunProgress

        progress = RunProgress(plan, journal)
        self._events.begin(progress, str(journal.directory))
        return nullcontext(self._events.make_listener(progress))

    def end(self, run: Run, interruption: str | None, exit_code: int) -> None:
        super().end(run, interruption, exit_code)
        self._events.end(str(run.directory), run.info, run.records, exit_code)


def add_view_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print events as JSON, one per line, for other programs")
    parser.add_argument("--quiet", action="store_true", help="print only the directory of the results, and errors")


def choose_view(options: Namespace) -> CommandView:
    check_view_flags(options)
    if options.json:
        return JsonView()
    return QuietView() if options.quiet else TextView()


def check_view_flags(options: Namespace) -> None:
    if options.json and options.quiet:
        raise InputError("--json and --quiet exclude each other")
