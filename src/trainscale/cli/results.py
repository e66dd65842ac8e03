"""What a person sees when a run ends: the tables, and one line that says where everything is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..record.parity import Verdict
from ..record.trial import TrialRecord


def print_results(directory: Path, records: Sequence[TrialRecord], verdicts: Sequence[Verdict] = ()) -> None:
    from rich.console import Console

    from ..analyse.series import build_series
    from ..report.table import series_table

    console = Console()
    if records:
        console.print(series_table(build_series(records, verdicts)))
    where = f"results: {directory}/  (open report.html; plots: *.svg; tables: results.csv, csv_*/)"
    console.print(where, soft_wrap=True, highlight=False, markup=False)
