"""All files that a run's directory gets from its records, after a run and again by `trainscale report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
from .wording import summary, title


def write_outputs(
    directory: Path,
    run: RunInfo,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    accuracy: float | None = None,
) -> list[Path]:
    """Writes every output and returns the paths, those a person opens first at the front.

    The same records give the same bytes. Any number of points may have failed, or all of them. ``accuracy``: how long
    it took to this one is told.
    """
    series = build_series(records, verdicts, accuracy)
    learnt = {"accuracy.svg": to_svg(accuracy_chart(series), standalone=True)} if any(s.learns for s in series) else {}
    contents = {
        "report.html": report_html(run, series),
        "report.md": report_md(run, series, title(series), summary(run, series)),
        **learnt,
        "comparison_graph.svg": to_svg(charts.speedup_chart(series), standalone=True),
        f"{common_unit(series)}_per_sec.svg": to_svg(charts.throughput_chart(series), standalone=True),
        "results.csv": csv_files.results_csv(series),
        "results.json": results_json(run, series),
        **csv_files.series_files(series),
    }
    paths = [write_atomically(directory / name, text) for name, text in contents.items()]
    _remove_stale(directory, series, set(paths))
    return paths


def _remove_stale(directory: Path, series: Sequence[Series], written: set[Path]) -> None:
    """Removes series files of an earlier call whose names are no longer right: a clash changes names."""
    for folder in {csv_files.folder(one.config) for one in series}:
        for path in (directory / folder).glob("*.csv"):
            if path not in written:
                path.unlink()
