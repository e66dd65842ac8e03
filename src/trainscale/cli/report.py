"""``trainscale report DIR…``: a run's tables and plots again, from its journal."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..record.journal import read_run, read_trials
from ..record.parity import read_parity
from .parser import Parser
from .results import print_results


def main(words: list[str]) -> int:
    parser = Parser("report", "Write a run's tables and plots again, from its journal. Statistics are recomputed.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    options = parser.read(words)
    runs = [(directory, read_run(directory), read_trials(directory)) for directory in options.directories]
    for directory, _, records in runs:
        if not records:
            raise InputError(
                f"{directory}: no trial of this run has finished; continue it with the command that began it"
            )
    from ..report.outputs import write_outputs

    for directory, run, records in runs:
        verdicts = read_parity(directory)
        write_outputs(directory, run, records, verdicts)
        print_results(directory, records, verdicts)
    return 0
