"""``trainscale explain DIR``: where the efficiency of a run went, from its journal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from .damage import warn_of_damage
from .parser import Parser

_FLAG = "--explain"


def main(argv: list[str]) -> int:
    parser = Parser(
        "explain", "Explain where the efficiency of a run went. The step time of every point is split by cause."
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of a run")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print Markdown")
    options = parser.read(argv)
    run, records = read_run(options.directory), read_trials(options.directory, warn_of_damage)
    command = make_explaining_command(run)
    check_can_explain(options.directory, records)
    if not options.json and not options.markdown:
        print_explanation(run, records)
        return 0
    from ..analyse.explanation.explain import explain_records
    from ..report.explanation_text import render_explanation_json, render_explanation_markdown

    write = render_explanation_json if options.json else render_explanation_markdown
    print(write(explain_records(records), command))
    return 0


def print_explanation(run: RunInfo, records: Sequence[TrialRecord]) -> None:
    """Print the explanation of every point that can be explained."""
    from ..analyse.explanation.explain import explain_records
    from ..report.explanation_text import render_explanation_text

    points = explain_records(records)
    if points:
        print(render_explanation_text(points, make_explaining_command(run)), end="")


def make_explaining_command(run: RunInfo) -> str:
    """Return the command of the run, with the flag that measures what an explanation needs."""
    command = run.read_provenance().command or "trainscale run"
    return command if _FLAG in shlex.split(command) else f"{command} {_FLAG}"


def check_can_explain(directory: Path, records: Sequence[TrialRecord]) -> None:
    """Raise an InputError if no point of the run can be explained at all."""
    from ..analyse.throughput import is_measured, is_synchronous

    measured = [record for record in records if is_measured(record)]
    if not records:
        raise InputError(f"{directory}: no trial of this run has finished; continue it with the command that began it")
    if not measured:
        raise InputError(f"{directory}: every trial of this run failed; its report says why")
    if not any(record.trial.devices > 1 for record in measured):
        raise InputError(f"{directory}: this run has one device only, so there is no efficiency to explain")
    if not any(record.trial.devices > 1 and is_synchronous(record.trial.config) for record in measured):
        strategies = ", ".join(dict.fromkeys(record.trial.config.strategy_label for record in measured))
        raise InputError(
            f"{directory}: only synchronous strategies are explained, and this run has {strategies};"
            f" valid: a run with allreduce, sharded or ps"
        )
