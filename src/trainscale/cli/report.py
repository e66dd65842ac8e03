"""``trainscale report DIR…``: write a run's tables and plots again, from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill

from ..analyse.cost import parse_price
from ..errors import InputError, unknown
from ..published.curve import PublishedCurve
from ..published.selection import NORMALISATIONS, SPEEDUP
from ..published.table import PREFIX, find_curve
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..report.installation import check_can_report
from ..spec.groups import SETTINGS
from .parser import Parser
from .results import print_results


def main(argv: list[str]) -> int:
    options = _parser().read(argv)
    curves = _read_curves(options.beside, options.normalise)
    text = options.until_accuracy
    accuracy = None if text is None else SETTINGS["until_accuracy"].read_text(text, "--until-accuracy")
    price = None if options.price is None else parse_price(options.price)
    runs = [(path, read_run(path), read_trials(path), read_parity(path)) for path in options.directories]
    for directory, _, records, _ in runs:
        if not records:
            raise InputError(
                f"{directory}: no trial of this run has finished; continue it with the command that began it"
            )
    check_can_report()
    from ..analyse.published.beside import lay_beside
    from ..analyse.series import build_series
    from ..report.chart_files import read_formats
    from ..report.options import ReportOptions
    from ..report.outputs import write_outputs
    from ..report.published_beside import beside_sentences

    how = options.normalise or SPEEDUP
    formats = () if options.format is None else read_formats(options.format, "--format")
    charts = [lay_beside(run, build_series(records) if curves else [], curves, how) for _, run, records, _ in runs]
    for (directory, run, records, verdicts), beside in zip(runs, charts, strict=True):
        report_options = ReportOptions(options.show_hosts, price, formats, beside)
        write_outputs(directory, run, records, verdicts, accuracy, report_options)
        print_results(directory, records, verdicts, run, accuracy)
        for line in beside_sentences(beside):
            print(fill(line.sentence, get_terminal_size().columns, break_on_hyphens=False))
    return 0


def _parser() -> Parser:
    parser = Parser("report", "Write a run's tables and plots again, from its journal. Statistics are recomputed.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    parser.add_argument(
        "--until-accuracy",
        metavar="SHARE",
        help="show the training time to this validation accuracy, such as 0.9 (default: the accuracy of the run)",
    )
    parser.add_argument(
        "--format", metavar="LIST", help="also write every chart as files in these formats: png, pdf, svg"
    )
    parser.add_argument("--price", metavar="PRICE", help="show costs at a price such as 32.77/host-hour")
    parser.add_argument(
        "--show-hosts", action="store_true", help="show the names of hosts in the page, report.md and the pictures"
    )
    parser.add_argument(
        "--with",
        dest="beside",
        action="append",
        default=[],
        metavar="published:ID",
        help="show a published curve in the charts, beside the run's own; may be given several times",
    )
    parser.add_argument(
        "--normalise",
        metavar="HOW",
        help=f"how curves of --with are shown: {', '.join(NORMALISATIONS)} (default: {SPEEDUP})",
    )
    return parser


def _read_curves(names: Sequence[str], normalise: str | None) -> list[PublishedCurve]:
    if normalise is not None and not names:
        raise InputError("--normalise: valid together with --with published:ID")
    if normalise is not None and normalise not in NORMALISATIONS:
        raise unknown("normalisation", normalise, NORMALISATIONS, "--normalise")
    for name in names:
        if not name.startswith(PREFIX):
            raise InputError(f"--with {name}: valid: a published curve, {PREFIX}ID; trainscale published lists them")
    return [find_curve(name, "--with") for name in names]
