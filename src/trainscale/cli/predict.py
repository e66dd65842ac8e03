"""``trainscale predict DIR``: what more devices than were measured would bring, or why that would be a guess."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ..analyse.prediction.calibration import MOST_TIMES
from ..analyse.prediction.predict import count_devices_of_host, predict
from ..analyse.series import build_series
from ..analyse.study import select_studied_records
from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..spec.value_types import whole
from .damage import warn_of_damage
from .parser import Parser

if TYPE_CHECKING:
    from ..report.predictions import PredictedSeries


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    counts = None if options.devices is None else _read_counts(options.devices)
    all_predicted = _predict_all(options.directory, counts)
    from ..report.predictions import render_prediction_json, render_prediction_markdown

    if options.json:
        print(render_prediction_json(all_predicted), end="")
    elif options.markdown:
        print(render_prediction_markdown(all_predicted), end="")
    else:
        _print(all_predicted)
    return 0 if any(predicted.predictions for predicted in all_predicted) else 1


def _make_parser() -> Parser:
    parser = Parser(
        "predict",
        "Predict the speed on more devices than were measured, with an interval, or explain why that would be a guess."
        " The exit code is 1 if nothing can be predicted.",
    )
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run")
    add(
        "--devices",
        metavar="N,…",
        help=f"device counts (default: 2 and {MOST_TIMES} times the largest that was measured; more is refused)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", action="store_true", help="print Markdown")
    return parser


def _read_counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(whole(1).parse(part.strip())) for part in text.split(",")))
    except ValueError as error:
        raise InputError(f"--devices: {error}") from None


def _predict_all(directory: Path, counts: Sequence[int] | None) -> list[PredictedSeries]:
    run = read_run(directory)
    records = select_studied_records(run, read_trials(directory, warn_of_damage))
    if not records:
        raise InputError(f"{directory}: no trial of this run has finished; continue it with the command that began it")
    from ..report.predictions import PredictedSeries

    all_predicted = []
    for series in build_series(records, read_parity(directory), by_budget=run.is_sequential):
        if series.good:
            most, host_devices = series.good[-1].devices, count_devices_of_host(run, series.config)
            answers = (predict(series, count, host_devices) for count in counts or (2 * most, MOST_TIMES * most))
            all_predicted.append(PredictedSeries(series, tuple(answers)))
    if not all_predicted:
        raise InputError(f"{directory}: every trial of this run failed; its report says why")
    return all_predicted


def _print(all_predicted: Sequence[PredictedSeries]) -> None:
    from rich.console import Console
    from rich.text import Text

    from ..report.grid import TerminalGrid
    from ..report.predictions import explain_method, list_sentences, make_prediction_grid

    console = Console(highlight=False)
    for predicted in all_predicted:
        console.print(TerminalGrid(make_prediction_grid(predicted)), end="")
        for sentence in list_sentences(predicted):
            print(fill(sentence, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    console.print(Text(explain_method(), style="dim"))
