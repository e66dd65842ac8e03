"""All output files of a run, written after the run and again by `trainscale report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..analyse.best.points import RecordedRun
from ..analyse.best.races import races_of_run
from ..analyse.published.beside import Beside
from ..analyse.series import Series, build_series, common_unit
from ..record.files import write_atomically
from ..record.parity import Verdict
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from . import charts, csv_files
from .accuracy_charts import accuracy_chart, accuracy_over_time_chart
from .chart_files import SVG, draw_files
from .html import report_html
from .json_file import results_json
from .markdown import report_md
from .options import ReportOptions
from .page.details import make_details
from .page.figures import NamedChart
from .page.redaction import Redaction, redact_hosts
from .page.selection import choose_charted
from .published_beside import beside_md, throughput_chart
from .search_table import search_grids, series_in_full
from .wording import summary, title


def write_outputs(
    directory: Path,
    run: RunInfo,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    accuracy: float | None = None,
    options: ReportOptions | None = None,
) -> list[Path]:
    """Write every output and return the paths; those that a person opens first come first.

    The same records give the same bytes. Any number of points may have failed, even all. ``accuracy`` replaces the
    accuracy to which the run was to train, where the time to accuracy is shown. Pages and pictures name no hosts unless
    ``options`` ask for them; the files for programs do.
    """
    options = options or ReportOptions()
    all_series = build_series(records, verdicts, accuracy, run.is_sequential)
    redaction = Redaction() if options.show_hosts else redact_hosts(run, records)
    shown_run, shown = redaction.run(run), redaction.all_series(all_series)
    searches = [redaction.grid(grid) for grid in search_grids(races_of_run(run, records, verdicts), records)]
    in_full = series_in_full(shown, records)
    charted = choose_charted(in_full)
    details = make_details(RecordedRun(run, records, verdicts), in_full, charted, redaction, options.price)
    main_charts = _main_charts(charted, options.beside)
    every_chart = [*main_charts, *_further_charts(charted, options.beside), *details.charts]
    contents: dict[str, str | bytes] = {
        "report.html": report_html(shown_run, in_full, searches, options.beside, details),
        "report.md": report_md(shown_run, shown, title(shown), summary(run, shown), searches)
        + beside_md(options.beside),
        **draw_files(main_charts, [SVG]),
        **draw_files(every_chart, options.formats),
        "results.csv": csv_files.results_csv(all_series),
        "results.json": results_json(run, all_series),
        **csv_files.series_files(all_series),
    }
    paths = [write_atomically(directory / name, content) for name, content in contents.items()]
    _remove_stale(directory, all_series, set(paths))
    return paths


def _main_charts(charted: Sequence[Series], beside: Beside) -> list[NamedChart]:
    """Return the charts that every run has as SVG files."""
    learns = any(series.learns for series in charted)
    with_published = [*charted, *beside.series]
    return [
        NamedChart("comparison_graph", lambda frame: charts.speedup_chart(with_published, frame)),
        NamedChart(f"{common_unit(charted)}_per_sec", lambda frame: throughput_chart(charted, beside, frame)),
        *([NamedChart("accuracy", lambda frame: accuracy_chart(charted, frame))] if learns else []),
    ]


def _further_charts(charted: Sequence[Series], beside: Beside) -> list[NamedChart]:
    """Return the charts of the page that become files on request."""
    over_time = NamedChart("accuracy_over_time", lambda frame: accuracy_over_time_chart(charted, frame))
    return [
        NamedChart("efficiency", lambda frame: charts.efficiency_chart([*charted, *beside.series], frame)),
        *([over_time] if any(series.learns for series in charted) else []),
    ]


def _remove_stale(directory: Path, all_series: Sequence[Series], written: set[Path]) -> None:
    """Remove series files of an earlier call whose names have changed, because another series now shares the name."""
    for folder in {csv_files.folder(series.config) for series in all_series}:
        for path in (directory / folder).glob("*.csv"):
            if path not in written:
                path.unlink()
