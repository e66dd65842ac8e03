"""All output files of a run, written after the run and again by `trainscale report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..analyse.best.races import races_of_run
from ..analyse.published.beside import Beside
from ..analyse.series import Series, build_series, common_unit
from ..record.files import write_atomically
from ..record.parity import Verdict
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from . import charts, csv_files
from .accuracy_charts import accuracy_chart
from .drawing import to_svg
from .html import report_html
from .json_file import results_json
from .markdown import report_md
from .published_beside import beside_md, throughput_chart
from .search_table import search_grids, series_in_full
from .wording import summary, title


def write_outputs(
    directory: Path,
    run: RunInfo,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    accuracy: float | None = None,
    beside: Beside | None = None,
) -> list[Path]:
    """Write every output and return the paths; those that a person opens first come first.

    The same records give the same bytes. Any number of points may have failed, even all. ``accuracy`` replaces the
    accuracy to which the run was to train, where the time to accuracy is shown. ``beside`` are published curves for the
    charts.
    """
    beside = beside or Beside()
    all_series = build_series(records, verdicts, accuracy, run.is_sequential)
    searches = search_grids(races_of_run(run, records, verdicts), records)
    charted = series_in_full(all_series, records)
    contents = {
        "report.html": report_html(run, charted, searches, beside),
        "report.md": report_md(run, all_series, title(all_series), summary(run, all_series), searches)
        + beside_md(beside),
        "comparison_graph.svg": to_svg(charts.speedup_chart([*charted, *beside.series]), standalone=True),
        f"{common_unit(all_series)}_per_sec.svg": to_svg(throughput_chart(charted, beside), standalone=True),
        "results.csv": csv_files.results_csv(all_series),
        "results.json": results_json(run, all_series),
        **csv_files.series_files(all_series),
    }
    if any(series.learns for series in all_series):
        contents["accuracy.svg"] = to_svg(accuracy_chart(all_series), standalone=True)
    paths = [write_atomically(directory / name, text) for name, text in contents.items()]
    _remove_stale(directory, all_series, set(paths))
    return paths


def _remove_stale(directory: Path, all_series: Sequence[Series], written: set[Path]) -> None:
    """Remove series files of an earlier call whose names have changed, because another series now shares the name."""
    for folder in {csv_files.folder(series.config) for series in all_series}:
        for path in (directory / folder).glob("*.csv"):
            if path not in written:
                path.unlink()
