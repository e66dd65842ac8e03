"""report.md: the tables of runs as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.series import find_common_unit
from ..runs import Run
from . import learning_tables, provenance_tables, wording
from .details import PageDetails
from .documents import load_template
from .options import Overlay
from .table import escape, make_scaling_grid, render_markdown

_FILTERS = (("escape", escape), ("points", make_scaling_grid), ("table", render_markdown))


def render_report_md(runs: Sequence[Run], overlay: Overlay | None = None, details: PageDetails | None = None) -> str:
    """Return the document. Title, summary and verdicts are those of report.html."""
    all_series = [series for run in runs for series in run.series]
    learning = {}
    if any(series.learns for series in all_series):
        learning = {
            "System performance": [grid for run in runs for grid in learning_tables.make_system_grids(run)],
            "By device count": learning_tables.make_device_grids(all_series),
            "Every epoch": learning_tables.make_epoch_grids(all_series),
        }
    origins = []
    for run in runs:
        datasets = provenance_tables.make_datasets_grid(run.info, run.series)
        origins.append((run, [provenance_tables.make_machines_grid(run.info), *([datasets] if datasets else [])]))
    text = load_template(__package__, "report.md.j2", _FILTERS).render(
        runs=runs,
        all_series=all_series,
        differences=provenance_tables.make_difference_grid(runs) if len(runs) > 1 else None,
        learning=learning,
        origins=origins,
        details=details or PageDetails(),
        overlay=overlay or Overlay(),
        unit=find_common_unit(all_series),
        wording=wording,
    )
    return text.rstrip() + "\n"
