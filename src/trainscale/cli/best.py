"""``trainscale best DIR…``: the best configuration for every device count, from the journals of runs."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError, explain_unknown
from ..questions.best.candidates import COST, CRITERIA, SPEED, TIME
from ..runs import Run, best
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
    text = options.until_accuracy
    accuracy = None if text is None else SETTINGS["until_accuracy"].read_text(text, "--until-accuracy")
    runs = [Run.open(path, warn_of_damage) for path in options.directories]
    answer = best(*runs, by=options.by, price=options.price, until_accuracy=accuracy)
    if options.by != SPEED and not any(choice.leader for choice in answer.choices):
        reasons = dict.fromkeys(out.reason for choice in answer.choices for out in choice.left_out)
        raise InputError(f"--by {options.by}: no trial of these runs has a value: {'; '.join(reasons)}")
    from ..questions.best.text import print_text, render_json

    if options.json:
        print(render_json(answer), end="")
    elif options.markdown:
        print(answer.text, end="")
    else:
        print_text(answer)
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
