"""``trainscale report DIR…``: a run's tables and plots again, from its journal."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from ..spec.groups import SETTINGS
from .parser import Parser
from .results import print_results


def main(words: list[str]) -> int:
    parser = Parser("report", "Write a run's tables and plots again, from its journal. Statistics are recomputed.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    parser.add_argument(
        "--until-accuracy",
        metavar="SHARE",
        help="how long training took to this validation accuracy, such as 0.9 (default: that of the run)",
    )
    options = parser.read(words)
    asked, field = options.until_accuracy, SETTINGS["until_accuracy"]
    accuracy = None if asked is None else field.read_text(asked, "--until-accuracy")
    runs = [(directory, read_run(directory), read_trials(directory)) for directory in options.directories]
    for directory, _, records in runs:
        if not records:
            raise InputError(
                f"{directory}: no trial of this run has finished; continue it with the command that began it"
            )
    from ..report.outputs import write_outputs

    for directory, run, records in runs:
        verdicts = read_parity(directory)
        write_outputs(directory, run, records, verdicts, accuracy)
        print_results(directory, records, verdicts, run, accuracy)
    return 0
