"""``trainscale best DIR…``: the best configuration for every device count, from the journals of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from ..analyse.best.choose import BestOfWork, find_best
from ..analyse.best.criteria import COST, CRITERIA, SPEED, TIME, Question
from ..analyse.best.points import RecordedRun
from ..analyse.cost import parse_price
from ..errors import InputError, explain_unknown
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..spec.groups import SETTINGS
from .damage import warn_of_damage
from .parser import Parser


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    if options.by not in CRITERIA:
        raise explain_unknown("criterion", options.by, CRITERIA, "--by")
    if options.by == COST and options.price is None:
        raise InputError("--by cost: no price is given; valid with --price 32.77/host-hour or --price 2.5/device-hour")
    if options.json and options.markdown:
        raise InputError("--json and --markdown exclude each other")
    accuracy = options.until_accuracy
    question = Question(
        options.by,
        None if options.price is None else parse_price(options.price),
        None if accuracy is None else SETTINGS["until_accuracy"].read_text(accuracy, "--until-accuracy"),
    )
    all_best = find_best([read_recorded_run(path) for path in options.directories], question)
    _check_answers(all_best, question)
    from ..report.best import render_best_json, render_best_markdown

    if options.json:
        print(render_best_json(all_best, question), end="")
    elif options.markdown:
        print(render_best_markdown(all_best, question), end="")
    else:
        print_best(all_best, question)
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        "best", "Show the best configuration that was measured for every network and device count, with the runner-up."
    )
    add = parser.add_argument
    add("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    add("--by", default=SPEED, metavar="CRITERION", help=f"{', '.join(CRITERIA)} (default: {SPEED})")
    add("--price", metavar="PRICE", help="show costs at a price such as 32.77/host-hour or 2.5/device-hour")
    add(
        "--until-accuracy",
        metavar="SHARE",
        help=f"validation accuracy for --by {TIME}, such as 0.9 (default: the accuracy of the run)",
    )
    add("--json", action="store_true", help="print JSON")
    add("--markdown", action="store_true", help="print Markdown")
    return parser


def read_recorded_run(directory: Path) -> RecordedRun:
    run, records = read_run(directory), read_trials(directory, warn_of_damage)
    if not records:
        raise InputError(f"{directory}: no trial of this run has finished; continue it with the command that began it")
    return RecordedRun(run, records, read_parity(directory))


def _check_answers(all_best: Sequence[BestOfWork], question: Question) -> None:
    """Refuse a criterion by which nothing has a value, such as an accuracy that nobody trained to."""
    answers = [answer for best in all_best for answer in best.answers]
    if question.by == SPEED or any(answer.leader for answer in answers):
        return
    reasons = dict.fromkeys(out.reason for answer in answers for out in answer.left_out)
    raise InputError(f"--by {question.by}: no trial of these runs has a value: {'; '.join(reasons)}")


def print_best(all_best: Sequence[BestOfWork], question: Question) -> None:
    from rich.console import Console
    from rich.text import Text

    from ..report.best import explain_energy, explain_numbers, list_sentences, make_best_grid
    from ..report.table import TerminalGrid

    console = Console(highlight=False)
    for best in all_best:
        if any(answer.leader for answer in best.answers):
            console.print(TerminalGrid(make_best_grid(best, question)), end="")
        else:
            console.print(Text(best.title, style="bold"))
        for sentence in list_sentences(best, question):
            print(fill(sentence, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    console.print(Text(f"{explain_numbers(question)} {explain_energy(all_best)}", style="dim"))
