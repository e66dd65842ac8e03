"""``trainscale watch DIR`` or ``HOST:DIR``: show a run that another process measures."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import InputError
from ..launch.launchers.ssh import SshSettings
from ..measure.measure import RunListener
from ..measure.watching import JournalSource, LocalJournal, RemoteJournal, WatchedEnd, watch_run
from ..record.journal import Journal, read_run
from ..record.parity import read_parity
from ..record.trial import SKIPPED
from ..spec.devices import Host
from ..spec.plan import Plan
from .parser import Parser, add_settings, read_experiment
from .signals import interrupt_on_signals
from .views import add_view_flags, check_view_flags

_REMOTE = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[^\]]+\]|[\w.-]+):(?P<directory>.+)", re.ASCII)
_JOB = "the run"


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    check_view_flags(options)
    settings = read_experiment(options).select_settings(SshSettings)
    try:
        with ExitStack() as stack:
            stack.enter_context(interrupt_on_signals())
            source, location = _open_source(options.directory, settings, stack)
            watcher = _Watcher(options, source, location)
            return watcher.finish(watch_run(source, watcher.show_trials, options.wait))
    except KeyboardInterrupt:
        print(f"{_JOB} goes on; the same command watches it again", file=sys.stderr)
        return 130


def _make_parser() -> Parser:
    parser = Parser(
        "watch",
        "Show the progress of a run that another process measures: the results so far, the trial that runs now, what is"
        " left, and warnings. It only reads. Exit codes: 0 complete, 1 a trial failed or the run was stopped.",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory of a run, here or as HOST:DIR on another host")
    parser.add_argument(
        "--wait", action="store_true", help="wait until the run is complete, even while no process measures it"
    )
    add_view_flags(parser)
    add_settings(parser, ("ssh_config", "forward_agent"))
    return parser


def _open_source(text: str, settings: SshSettings, stack: ExitStack) -> tuple[JournalSource, str]:
    """Return the journal, and how its place is called. A path that exists here is never taken for a host."""
    match = _REMOTE.fullmatch(text)
    if Path(text).exists() or match is None:
        read_run(Path(text))
        return LocalJournal(Path(text)), text
    if settings.config_path and not settings.config_path.is_file():
        raise InputError(f"ssh config {settings.config_path}: there is no such file")
    host = Host(match["host"].strip("[]"), user=match["user"] or "")
    return stack.enter_context(RemoteJournal(host, match["directory"], settings)), text


class _Watcher:
    """Shows a watched run in the view that the flags choose."""

    def __init__(self, options: Namespace, source: JournalSource, location: str) -> None:
        from .event_stream import EventStream

        self._is_quiet = bool(options.quiet)
        self._events = EventStream(sys.stdout) if options.json else None
        self._source = source
        self._location = location

    @contextmanager
    def show_trials(self, plan: Plan, journal: Journal) -> Iterator[RunListener]:
        from .live import RunProgress, describe_trials, show_progress

        progress = RunProgress(plan, journal, _JOB)
        if self._is_quiet:
            yield RunListener()
        elif self._events:
            self._events.begin(progress, self._location)
            yield self._events.make_listener(progress)
        else:
            print(f"watching {self._location}: {describe_trials(progress)} in the journal", flush=True)
            with show_progress(plan, journal, remote_job=_JOB) as listener:
                yield listener

    def finish(self, end: WatchedEnd) -> int:
        """Show the results, and how the run was left. Return the exit code."""
        is_good = all(record.ok or record.status == SKIPPED for record in end.records)
        exit_code = 0 if end.is_complete and is_good else 1
        if self._events:
            self._events.end(self._location, end.run, end.records, exit_code)
        elif self._is_quiet:
            print(self._location)
        else:
            self._print_results(end)
        if not end.is_complete:
            print(_describe_stop(end), file=sys.stderr)
        return exit_code

    def _print_results(self, end: WatchedEnd) -> None:
        from .results import print_results

        directory = self._source.directory
        print_results(directory, end.records, read_parity(directory), end.run, location=self._location)


def _describe_stop(end: WatchedEnd) -> str:
    count = len(end.records)
    return (
        f"no process measures this run now, and it is not complete ({count} trial{'' if count == 1 else 's'} in the"
        " journal); the command that began it continues it; --wait watches on, also where the lock of another host is"
        " not seen here"
    )
