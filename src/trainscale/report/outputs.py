"""All output files of a run, written after the run and again by `trainscale report`; also of several runs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analyse.series import Series, find_common_unit
from ..record.files import write_atomically
from ..record.parity import Verdict
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..runs import Run
from . import charts, csv_json
from .accuracy_charts import draw_accuracy, draw_accuracy_over_time
from .chart_files import FORMATS, SVG, draw_files
from .drawing_process import ChartsUnavailable, begin_drawing
from .html import render_report_html
from .markdown import render_report_md
from .options import ReportOptions
from .overlay import Overlay
from .page.details import PageDetails, make_details
from .page.figures import NamedChart
from .page.selection import choose_charted
from .reported_run import LabelledRun, ReportedRun, make_reported_runs
from .run_differences import make_difference_grid


@dataclass(frozen=True)
class Outputs:
    """The files that were written; those that a person opens first come first."""

    paths: list[Path]
    no_charts: str = ""  # why there are no charts, if they could not be drawn


def write_outputs(
    directory: Path,
    run: RunInfo,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    options: ReportOptions | None = None,
) -> Outputs:
    """Write every output of one run; see ``write_report``."""
    return write_report(directory, [LabelledRun(Run.from_records(run, records, verdicts))], options=options)


def write_report(
    directory: Path, runs: Sequence[LabelledRun], accuracy: float | None = None, options: ReportOptions | None = None
) -> Outputs:
    """Write every output of runs: first all tables, then what has charts, because charts cannot be drawn everywhere.

    The same records give the same bytes. Any number of points may have failed, even all. ``accuracy`` replaces the
    accuracy to which a run was to train, where the time to accuracy is shown. Pages and pictures name no hosts unless
    ``options`` ask for them; the files for programs do.
    """
    begin_drawing()
    options = options or ReportOptions()
    reported, redaction = make_reported_runs(runs, accuracy, options.show_hosts)
    charted = choose_charted([series for run in reported for series in run.in_full])
    details = make_details(reported, charted, redaction, options.price)
    text = _write(directory, {"report.md": render_report_md(reported, options.overlay, details.findings)})
    tables = _write(directory, _make_files_for_programs(reported))
    _remove_stale(directory, [series for run in reported for series in run.series], set(tables))
    page = _write(directory, {"report.html": render_report_html(reported, options.overlay, details)})
    pictures, problem = _write_charts(directory, charted, details, options)
    return Outputs([*page, *text, *pictures, *tables], problem)


def _write(directory: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    return [write_atomically(directory / name, content) for name, content in contents.items()]


def _write_charts(
    directory: Path, charted: Sequence[Series], details: PageDetails, options: ReportOptions
) -> tuple[list[Path], str]:
    """Write the files of charts. Return their paths, or why they cannot be drawn; then no older ones stay."""
    main_charts = _make_main_charts(charted, options.overlay)
    every_chart = [*main_charts, *_make_further_charts(charted, options.overlay), *details.charts]
    try:
        files = {**draw_files(main_charts, [SVG]), **draw_files(every_chart, options.formats)}
    except ChartsUnavailable as error:
        for chart in every_chart:
            for name in FORMATS:
                (directory / f"{chart.name}.{name}").unlink(missing_ok=True)
        return [], str(error)
    return _write(directory, files), ""


def _make_files_for_programs(runs: Sequence[ReportedRun]) -> dict[str, str]:
    if len(runs) == 1:
        (run,) = runs
        results = {
            "results.csv": csv_json.render_results_csv(run.series),
            "results.json": csv_json.render_results_json(run.recorded.info, run.series),
        }
    else:
        results = {
            "results.csv": csv_json.render_joint_csv([(run.label, run.series) for run in runs]),
            "results.json": csv_json.render_joint_json(
                [(run.label, run.recorded.info, run.series) for run in runs], make_difference_grid(runs)
            ),
        }
    files = [csv_json.make_series_files(run.series, run.label) for run in runs]
    return {**results, **{path: text for of_run in files for path, text in of_run.items()}}


def _make_main_charts(charted: Sequence[Series], overlay: Overlay) -> list[NamedChart]:
    """Return the charts that every run has as SVG files."""
    learns = any(series.learns for series in charted)
    with_published = [*charted, *overlay.series]
    return [
        NamedChart("comparison_graph", lambda frame: charts.draw_speedup(with_published, frame)),
        NamedChart(f"{find_common_unit(charted)}_per_sec", lambda frame: overlay.draw_throughput(charted, frame)),
        *([NamedChart("accuracy", lambda frame: draw_accuracy(charted, frame))] if learns else []),
    ]


def _make_further_charts(charted: Sequence[Series], overlay: Overlay) -> list[NamedChart]:
    """Return the charts of the page that become files on request."""
    over_time = NamedChart("accuracy_over_time", lambda frame: draw_accuracy_over_time(charted, frame))
    return [
        NamedChart("efficiency", lambda frame: charts.draw_efficiency([*charted, *overlay.series], frame)),
        *([over_time] if any(series.learns for series in charted) else []),
    ]


def _remove_stale(directory: Path, all_series: Sequence[Series], written: set[Path]) -> None:
    """Remove series files of an earlier call whose names have changed, because another series now shares the name."""
    for folder in {csv_json.name_folder(series.config) for series in all_series}:
        for path in (directory / folder).glob("*.csv"):
            if path not in written:
                path.unlink()
