"""``trainscale report DIR…``: write a run's tables and plots again, from its journal."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..report.installation import check_can_report
from ..spec.groups import SETTINGS
from .parser import Parser
from .results import print_results


def main(argv: list[str]) -> int:
    parser = Parser("report", "Write a run's tables and plots again, from its journal. Statistics are recomputed.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    parser.add_argument(
        "--until-accuracy",
        metavar="SHARE",
        help="show the training time to this validation accuracy, such as 0.9 (default: the accuracy of the run)",
    )
    options = parser.read(argv)
    text = options.until_accuracy
    accuracy = None if text is None else SETTINGS["until_accuracy"].read_text(text, "--until-accuracy")
    runs = [(path, read_run(path), read_trials(path), read_parity(path)) for path in options.directories]
    for directory, _, records, _ in runs:
        if not records:
            raise InputError(
                f"{directory}: no trial of this run has finished; continue it with the command that began it"
            )
    check_can_report()
    from ..report.outputs import write_outputs

    for directory, run, records, verdicts in runs:
        write_outputs(directory, run, records, verdicts, accuracy)
        print_results(directory, records, verdicts, run, accuracy)
    return 0
