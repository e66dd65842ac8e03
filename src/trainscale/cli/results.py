"""What a person sees when a run ends: the tables, and one line that says where all results are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..record.batches import read_batches
from ..record.parity import Verdict
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from .batches import describe_result

if TYPE_CHECKING:
    from rich.console import Console

    from ..analyse.series import Series
    from ..report.outputs import Outputs
    from ..report.reported_run import LabelledRun

_MOST_VERDICTS = 4  # trainscale explain has all
_MOST_POINTS = 4  # whose epochs are shown: more would push the other tables off the screen


def print_results(
    directory: Path,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    run: RunInfo | None = None,
    accuracy: float | None = None,
    location: str = "",
) -> None:
    """Print the tables of a run. Without ``run`` those of machines and data sets say less.

    ``location`` is how the directory is called, where ``directory`` is a copy of it.
    ``accuracy`` replaces the accuracy to which the run was to train, where the time to accuracy is shown.
    """
    from rich.console import Console

    from ..analyse.series import build_series
    from ..report.search_table import make_search_grids, select_series_in_full
    from ..report.table import TerminalGrid, make_series_table

    console = Console()
    all_series = build_series(records, verdicts, accuracy, run is not None and run.is_sequential)
    if records:
        console.print(make_series_table(select_series_in_full(all_series, records)))
    if run and run.is_search:
        from ..analyse.race import replay_races_of_run

        for grid in make_search_grids(replay_races_of_run(run, records, verdicts), records):
            console.print(TerminalGrid(grid), highlight=False)
    if any(series.learns for series in all_series):
        _print_learning(console, run or RunInfo({}), all_series)
    for search in read_batches(directory).values():
        if search.done:
            console.print(describe_result(search), soft_wrap=True, highlight=False, markup=False)
    place = location or f"{directory}"
    for line in _list_verdicts(run, records, place) if run else ():
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    summary = f"results: {place}/  (open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(summary, soft_wrap=True, highlight=False, markup=False)


def print_missing_charts(outputs: Outputs) -> None:
    """Say why the list of outputs has no charts, if it has none."""
    if outputs.no_charts:
        print(f"trainscale: charts are missing: {outputs.no_charts}", file=sys.stderr)


def print_joint_results(directory: Path, runs: Sequence[LabelledRun], accuracy: float | None = None) -> None:
    """Print the tables of several runs in one report, and in what the runs differ."""
    from rich.console import Console

    from ..report.reported_run import make_reported_runs
    from ..report.run_differences import list_difference_sentences, make_difference_grid
    from ..report.table import TerminalGrid, make_series_table

    console = Console()
    reported, _ = make_reported_runs(runs, accuracy, show_hosts=True)
    console.print(make_series_table([series for run in reported for series in run.in_full]))
    for grid in (make_difference_grid(reported), *(grid for run in reported for grid in run.searches)):
        console.print(TerminalGrid(grid), highlight=False)
    console.print(" ".join(list_difference_sentences(reported)), highlight=False, markup=False)
    for run in reported:
        lines = _list_verdicts(run.recorded.info, run.recorded.records, f"{run.label}/")
        for line in lines:
            console.print(f"{run.label}: {line}", soft_wrap=True, highlight=False, markup=False)
    summary = f"results: {directory}/  (open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(summary, soft_wrap=True, highlight=False, markup=False)


def print_summary_lines(directory: Path) -> None:
    """Print the lines ``key: value unit`` of a run."""
    from ..export.summary_lines import list_summary_lines
    from ..runs import Run

    run = Run(directory)
    for line in list_summary_lines(run.series, run.records):
        print(line)


def _list_verdicts(run: RunInfo, records: Sequence[TrialRecord], place: str) -> list[str]:
    """Return where the efficiency of each series went, for a few series."""
    from ..questions.explain.text import list_closing_verdicts

    verdicts = list_closing_verdicts(run, records)
    left_out = len(verdicts) - _MOST_VERDICTS
    further = [f"{left_out} more series: trainscale explain {place}"] if left_out > 0 else []
    return [*verdicts[:_MOST_VERDICTS], *further]


def _print_learning(console: Console, run: RunInfo, all_series: Sequence[Series]) -> None:
    from ..report import learning_tables, provenance_tables
    from ..report.table import TerminalGrid

    epochs = learning_tables.make_epoch_grids(all_series, learning_tables.MOST_IN_TERMINAL)
    datasets = provenance_tables.make_datasets_grid(run, all_series)
    if len(epochs) > _MOST_POINTS:
        console.print(f"Every epoch of these {len(epochs)} points is in report.md.\n", highlight=False)
    for grid in (
        *(epochs if len(epochs) <= _MOST_POINTS else ()),
        *learning_tables.make_device_grids(all_series),
        *learning_tables.make_system_grids(run, all_series),
        provenance_tables.make_machines_grid(run),
        *((datasets,) if datasets else ()),
    ):
        console.print(TerminalGrid(grid), highlight=False)
