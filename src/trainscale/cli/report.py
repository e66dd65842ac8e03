"""``trainscale report DIR…``: write a run's tables and plots again, from its journal."""

from __future__ import annotations

from pathlib import Path

from ..analyse.cost import parse_price
from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..report.installation import check_can_report
from ..spec.groups import SETTINGS
from .parser import Parser
from .results import print_results


def main(argv: list[str]) -> int:
    options = _parser().read(argv)
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
    from ..report.chart_files import read_formats
    from ..report.options import ReportOptions
    from ..report.outputs import write_outputs

    formats = () if options.format is None else read_formats(options.format, "--format")
    report_options = ReportOptions(options.show_hosts, price, formats)
    for directory, run, records, verdicts in runs:
        write_outputs(directory, run, records, verdicts, accuracy, report_options)
        print_results(directory, records, verdicts, run, accuracy)
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
    return parser
