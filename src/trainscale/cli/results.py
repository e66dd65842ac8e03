"""What a person sees when a run ends: the tables, and one line that says where all results are."""

from collections.abc import Sequence

from rich.console import Console

from ..questions.explain.text import list_closing_verdicts
from ..report import run_tables
from ..report.documents import SeriesTables, select_series_in_full
from ..runs import Run

_MOST_VERDICTS = 4  # trainscale explain has all
_MOST_POINTS = 4  # whose epochs are shown: more would push the other tables off the screen


def print_results(runs: Sequence[Run], location: str) -> None:
    """Print the results of a run, or of several. ``location`` names their directory."""
    console, grids = Console(highlight=False), []
    if any(run.records for run in runs):
        console.print(SeriesTables([series for run in runs for series in select_series_in_full(run)]))
    if len(runs) > 1:
        grids.append(run_tables.make_difference_grid(runs))
    for run in runs:
        if run.info.is_search:
            grids += run_tables.make_search_grids(run)
    for grid in grids:
        console.print(grid)
    if len(runs) == 1:
        if any(series.learns for series in runs[0].series):
            _print_learning(console, runs[0])
        if (runs[0].directory / "batches.json").exists():  # the batches of --batch auto
            from ..measure.batches import describe_search, read_batches

            for search in read_batches(runs[0].directory).values():
                if search.done:
                    console.print(describe_search(search), soft_wrap=True, markup=False)
    for run in runs:
        place, prefix = (f"{run.label}/", f"{run.label}: ") if len(runs) > 1 else (location, "")
        verdicts = list_closing_verdicts(run.info, run.records)
        for line in verdicts[:_MOST_VERDICTS]:
            console.print(f"{prefix}{line}", soft_wrap=True, markup=False)
        left_out = len(verdicts) - _MOST_VERDICTS
        if left_out > 0:
            line = f"{left_out} more series: trainscale explain {place}"
            console.print(f"{prefix}{line}", soft_wrap=True, markup=False)
    summary = "(open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(f"results: {location}/  {summary}", soft_wrap=True, markup=False)


def print_summary_lines(run: Run) -> None:
    """Print the lines ``key: value unit`` of a run."""
    from ..export.tables import list_summary_lines

    print("\n".join(list_summary_lines(run)))


def _print_learning(console: Console, run: Run) -> None:
    epochs = run_tables.make_epoch_grids(run.series, run_tables.MOST_IN_TERMINAL)
    datasets = run_tables.make_datasets_grid(run.info, run.series)
    if len(epochs) > _MOST_POINTS:
        console.print(f"Every epoch of these {len(epochs)} points is in report.md.\n")
    for grid in (
        *(epochs if len(epochs) <= _MOST_POINTS else ()),
        *run_tables.make_device_grids(run.series),
        *run_tables.make_system_grids(run),
        run_tables.make_machines_grid(run.info),
        *((datasets,) if datasets else ()),
    ):
        console.print(grid)
