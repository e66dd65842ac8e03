"""What a person sees when a run ends: the tables, and one line that says where all results are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..runs import Run

_MOST_VERDICTS = 4  # trainscale explain has all
_MOST_POINTS = 4  # whose epochs are shown: more would push the other tables off the screen


def print_results(run: Run, location: str = "") -> None:
    """``location`` names the directory where ``run`` is read from a copy."""
    from ..report.table import TerminalGrid, make_series_table, select_series_in_full

    console, place = Console(highlight=False), location or f"{run.directory}"
    if run.records:
        console.print(make_series_table(select_series_in_full(run)))
    if run.info.is_search:
        from ..report.search_table import make_search_grids

        for grid in make_search_grids(run):
            console.print(TerminalGrid(grid))
    if any(series.learns for series in run.series):
        _print_learning(console, run)
    if (run.directory / "batches.json").exists():  # the batches of --batch auto
        from ..measure.batches import describe_search
        from ..record.batches import read_batches

        for search in read_batches(run.directory).values():
            if search.done:
                console.print(describe_search(search), soft_wrap=True, markup=False)
    _print_verdicts(console, run, place)
    _print_place(console, place)


def print_joint_results(directory: Path, runs: Sequence[Run]) -> None:
    from ..report.provenance_tables import make_difference_grid
    from ..report.search_table import make_search_grids
    from ..report.table import TerminalGrid, make_series_table, select_series_in_full

    console = Console(highlight=False)
    console.print(make_series_table([series for run in runs for series in select_series_in_full(run)]))
    for grid in (make_difference_grid(runs), *(grid for run in runs for grid in make_search_grids(run))):
        console.print(TerminalGrid(grid))
    for run in runs:
        _print_verdicts(console, run, f"{run.label}/", f"{run.label}: ")
    _print_place(console, f"{directory}")


def print_missing_charts(reason: str) -> None:
    if reason:
        print(f"trainscale: charts are missing: {reason}", file=sys.stderr)


def print_summary_lines(run: Run) -> None:
    """Print the lines ``key: value unit`` of a run."""
    from ..export.tables import list_summary_lines

    print("\n".join(list_summary_lines(run)))


def _print_verdicts(console: Console, run: Run, place: str, prefix: str = "") -> None:
    from ..questions.explain.text import list_closing_verdicts

    verdicts = list_closing_verdicts(run.info, run.records)
    left_out = len(verdicts) - _MOST_VERDICTS
    further = [f"{left_out} more series: trainscale explain {place}"] if left_out > 0 else []
    for line in (*verdicts[:_MOST_VERDICTS], *further):
        console.print(f"{prefix}{line}", soft_wrap=True, markup=False)


def _print_place(console: Console, place: str) -> None:
    summary = f"results: {place}/  (open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(summary, soft_wrap=True, markup=False)


def _print_learning(console: Console, run: Run) -> None:
    from ..report import learning_tables, provenance_tables
    from ..report.table import TerminalGrid

    epochs = learning_tables.make_epoch_grids(run.series, learning_tables.MOST_IN_TERMINAL)
    datasets = provenance_tables.make_datasets_grid(run.info, run.series)
    if len(epochs) > _MOST_POINTS:
        console.print(f"Every epoch of these {len(epochs)} points is in report.md.\n")
    for grid in (
        *(epochs if len(epochs) <= _MOST_POINTS else ()),
        *learning_tables.make_device_grids(run.series),
        *learning_tables.make_system_grids(run),
        provenance_tables.make_machines_grid(run.info),
        *((datasets,) if datasets else ()),
    ):
        console.print(TerminalGrid(grid))
