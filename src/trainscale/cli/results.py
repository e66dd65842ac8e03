"""What a person sees when a run ends: the tables, and one line that says where everything is."""

from __future__ import annotations

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

_MOST_POINTS = 4  # whose epochs are shown: more would push the other tables off the screen


def print_results(
    directory: Path,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    run: RunInfo | None = None,
    accuracy: float | None = None,
) -> None:
    """``run``: what the tables of machines and data sets are made of; without it they say less. ``accuracy``: how long
    it took to this one is told, instead of that which the run was to stop at.
    """
    from rich.console import Console

    from ..analyse.series import build_series
    from ..report.table import series_table

    console = Console()
    series = build_series(records, verdicts, accuracy)
    if records:
        console.print(series_table(series))
    if any(one.learns for one in series):
        _print_learning(console, run or RunInfo({}), series)
    for search in read_batches(directory).values():
        if search.done:
            console.print(describe_result(search), soft_wrap=True, highlight=False, markup=False)
    where = f"results: {directory}/  (open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(where, soft_wrap=True, highlight=False, markup=False)


def _print_learning(console: Console, run: RunInfo, series: Sequence[Series]) -> None:
    from ..report import learning_tables, provenance_tables
    from ..report.grid import InTerminal

    epochs = learning_tables.epoch_grids(series, learning_tables.MOST_IN_TERMINAL)
    images = provenance_tables.datasets_grid(run, series)
    if len(epochs) > _MOST_POINTS:
        console.print(f"Every epoch of these {len(epochs)} points is in report.md.\n", highlight=False)
    for grid in (
        *(epochs if len(epochs) <= _MOST_POINTS else ()),
        *learning_tables.device_grids(series),
        *learning_tables.system_grids(run, series),
        provenance_tables.machines_grid(run),
        *((images,) if images else ()),
    ):
        console.print(InTerminal(grid), highlight=False)
