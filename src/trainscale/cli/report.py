"""``trainscale report DIR…``: write the tables and plots of a run again, or of several runs together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill

from ..analyse.series import Series, build_series
from ..analyse.throughput import parse_price
from ..errors import InputError, explain_unknown
from ..questions.published.curves import PREFIX, PublishedCurve, find_curve
from ..record.run import RunInfo
from ..report.installation import check_can_report
from ..report.overlay import NORMALISATIONS, SPEEDUP, Overlay
from ..report.reported_run import LabelledRun, label_series
from ..runs import Run
from ..spec.groups import SETTINGS
from .parser import Parser
from .reported_runs import DEFAULT_OUTPUT, ReadRun, choose_output, read_runs
from .results import print_joint_results, print_missing_charts, print_results


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    curves = _read_curves(options.overlay, options.normalise)
    text = options.until_accuracy
    accuracy = None if text is None else SETTINGS["until_accuracy"].read_text(text, "--until-accuracy")
    price = None if options.price is None else parse_price(options.price)
    runs = read_runs(options.directories, options.label)
    directory = choose_output(runs, options.output)
    check_can_report()
    from ..report.chart_files import read_formats
    from ..report.options import ReportOptions
    from ..report.outputs import write_report

    formats = () if options.format is None else read_formats(options.format, "--format")
    overlay = Overlay()
    if curves:
        from ..questions.published.text import overlay_curves

        overlay = overlay_curves(_build_series_for_curves(runs), curves, options.normalise or SPEEDUP)
    report_options = ReportOptions(options.show_hosts, price, formats, overlay)
    labelled = [LabelledRun(Run.from_records(run.info, run.records, run.verdicts), run.label) for run in runs]
    outputs = write_report(directory, labelled, accuracy, report_options)
    if len(runs) == 1:
        print_results(directory, runs[0].records, runs[0].verdicts, runs[0].info, accuracy)
    else:
        print_joint_results(directory, labelled, accuracy)
    print_missing_charts(outputs)
    for line in overlay.sentences:
        print(fill(line.sentence, get_terminal_size().columns, break_on_hyphens=False))
    return 0


def _build_series_for_curves(runs: Sequence[ReadRun]) -> list[tuple[RunInfo, Sequence[Series]]]:
    """Return the series among which the most similar to a published curve is found."""
    return [(run.info, label_series(run.label, build_series(run.records, run.verdicts))) for run in runs]


def _make_parser() -> Parser:
    parser = Parser(
        "report",
        "Write a run's tables and plots again, from its journal. Statistics are recomputed. Several runs give one"
        " report, in a directory of its own, which also says in what they differ.",
    )
    add = parser.add_argument
    add("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    output = f"where a report of several runs is written (default: {DEFAULT_OUTPUT}/)"
    add("-o", "--output", type=Path, metavar="DIR", help=output)
    label = (
        "name of a run in a report of several runs; give one for each run, in the same order (default: the name of its"
        " directory)"
    )
    add("--label", action="append", default=[], metavar="NAME", help=label)
    accuracy = "show the training time to this validation accuracy, such as 0.9 (default: the accuracy of the run)"
    add("--until-accuracy", metavar="SHARE", help=accuracy)
    add("--format", metavar="LIST", help="also write every chart as files in these formats: png, pdf, svg")
    add("--price", metavar="PRICE", help="show costs at a price such as 32.77/host-hour")
    add("--show-hosts", action="store_true", help="show the names of hosts in the page, report.md and the pictures")
    overlay = "add a published curve to the charts; may be repeated"
    add("--with", dest="overlay", action="append", default=[], metavar="published:ID", help=overlay)
    normalise = f"how curves of --with are shown: {', '.join(NORMALISATIONS)} (default: {SPEEDUP})"
    add("--normalise", metavar="HOW", help=normalise)
    return parser


def _read_curves(names: Sequence[str], normalise: str | None) -> list[PublishedCurve]:
    if normalise is not None and not names:
        raise InputError("--normalise: valid together with --with published:ID")
    if normalise is not None and normalise not in NORMALISATIONS:
        raise explain_unknown("normalisation", normalise, NORMALISATIONS, "--normalise")
    for name in names:
        if not name.startswith(PREFIX):
            raise InputError(f"--with {name}: valid: a published curve, {PREFIX}ID; trainscale published lists them")
    return [find_curve(name, "--with") for name in names]
