"""``trainscale watch DIR`` or ``HOST:DIR``: show a run that another process measures."""

import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ..measure.watching import copy_journal, watch_run
from ..record.journal import is_being_measured, read_run
from ..record.parity import read_parity
from ..record.trial import SKIPPED
from ..report.numbers import format_count
from ..runs import Run
from ..spec.devices import Host
from .parser import Parser, add_settings, read_experiment
from .signals import interrupt_on_signals
from .views import CommandView, add_view_flags

_REMOTE = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[^\]]+\]|[\w.-]+):(?P<directory>.+)", re.ASCII)
_JOB = "the run"


def main(argv: list[str]) -> int:
    parser = Parser(
        "watch",
        "Show the progress of a run that another process measures: the results so far, the trial that runs now, what is"
        " left, and warnings. It only reads. Exit codes: 0 complete, 1 a trial failed or the run was stopped.",
    )
    parser.add("directory", "DIR", "the directory of a run, here or as HOST:DIR on another host")
    parser.add("--wait", "", "wait until the run is complete, even while no process measures it")
    add_view_flags(parser)
    add_settings(parser, ("ssh_config", "forward_agent"))
    options = parser.read(argv)
    location = options.directory
    view = CommandView(options.style, location, _JOB)
    try:
        with interrupt_on_signals(), ExitStack() as stack:
            settings = read_experiment(options).ssh
            match = None if Path(location).exists() else _REMOTE.fullmatch(location)
            directory = Path(location)
            is_measured: Callable[[], bool] = partial(is_being_measured, directory)
            if match is None:
                read_run(directory)
            else:
                host = Host(match["host"].strip("[]"), user=match["user"] or "")
                copy = copy_journal(host, match["directory"], settings)
                directory, is_measured = stack.enter_context(copy)
            end = watch_run(directory, is_measured, view.show_trials, options.wait)
            is_good = all(record.ok or record.status == SKIPPED for record in end.records)
            is_complete, info, verdicts = end.is_complete, read_run(directory), read_parity(directory)
            run = Run.from_records(info, end.records, verdicts, directory)
            view.end(run, None, 0 if is_complete and is_good else 1)
    except KeyboardInterrupt:
        print(f"{_JOB} goes on; the same command watches it again", file=sys.stderr)
        return 130
    if not is_complete:
        print(
            "no process measures this run now, and it is not complete"
            f" ({format_count(len(end.records), 'trial')} in the journal);"
            " the command that began it continues it; --wait watches on, also where the lock of another host is not"
            " seen here",
            file=sys.stderr,
        )
    return view.exit_code
