"""All output files of a run, or of several runs together."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..analyse.series import Series
from ..record.files import write_atomically
from ..runs import Run
from . import csv_json, wording
from .charts import FULL, draw_speedup, draw_throughput, list_charts
from .details import choose_charted, make_details
from .drawing import ChartsUnavailable, begin_drawing, call_vl_convert, to_svg
from .options import FORMATS, PNG, SVG, ReportOptions
from .pages import render_report_html, render_report_md
from .redaction import Redaction, make_redaction
from .run_tables import make_difference_grid

_PNG_SCALE = 2.0  # pixels of a picture for each pixel of a chart
_GRAPH = "comparison_graph.svg"


def write_report(directory: Path, runs: Sequence[Run], options: ReportOptions | None = None) -> str:
    """Write every output of runs. Return why charts are missing, or the empty string.

    The same records give the same bytes. Several runs have labels. Pages and pictures name
    hosts only if ``options`` say so; the files for programs always do.
    """
    begin_drawing()
    options = options or ReportOptions()
    redaction = Redaction() if options.show_hosts else make_redaction(runs)
    shown = [redaction.redact_run(run) for run in runs]
    charted = choose_charted(shown)
    details = make_details(shown, charted, redaction, options.price)

    # First all tables, because charts cannot be drawn everywhere.
    differences = make_difference_grid(shown) if len(runs) > 1 else None
    tables: dict[str, str] = {
        "report.md": render_report_md(shown, options.overlay, details),
        "results.csv": csv_json.render_results_csv(runs),
        "results.json": csv_json.render_results_json(runs, differences),
    }
    for run in runs:
        tables |= csv_json.make_series_files(run.series, run.label)
    written = {write_atomically(directory / name, text) for name, text in tables.items()}
    # The name of a series file changes when another series begins to share it.
    for folder in {csv_json.name_folder(series.config) for run in runs for series in run.series}:
        for path in set((directory / folder).glob("*.csv")) - written:
            path.unlink()

    write_atomically(directory / "report.html", render_report_html(shown, options.overlay, details))
    charts = [*list_charts(charted, options.overlay), *details.charts]
    pictures: dict[str, str | bytes] = {}
    try:
        for chart in charts:
            formats = {*options.formats, SVG} if chart.is_always_file else set(options.formats)
            svg = to_svg(chart.draw(FULL), standalone=True) if formats else ""
            for name in formats:
                scale = [_PNG_SCALE] if name == PNG else []
                picture = svg if name == SVG else call_vl_convert(f"svg_to_{name}", svg, *scale)
                pictures[f"{chart.file}.{name}"] = picture
    except ChartsUnavailable as error:
        for chart in charts:
            for name in FORMATS:
                (directory / f"{chart.file}.{name}").unlink(missing_ok=True)  # of an earlier report
        return str(error)
    for name, content in pictures.items():
        write_atomically(directory / name, content)
    return ""


# ---- the files and the summary of the older scripts


def make_original_files(all_series: Sequence[Series], model_names: Mapping[str, str]) -> dict[str, str]:
    configs = [series.config for series in all_series]
    log_paths = csv_json.make_series_paths(configs, lambda _: "logs", model_names)
    csv_paths = csv_json.make_series_paths(configs, csv_json.name_folder, model_names)
    charts, files = {}, {}
    for series in (series for series in all_series if series.good):
        charts[f"{log_paths[series.config]}.svg"] = draw_throughput([series])
        for paths in (log_paths, csv_paths):
            files[f"{paths[series.config]}.csv"] = csv_json.render_series_csv(series)
    if files:
        charts[_GRAPH] = draw_speedup(all_series)
    try:
        return files | {path: to_svg(chart, standalone=True) for path, chart in charts.items()}
    except ChartsUnavailable:
        return files


def list_summary_lines(all_series: Sequence[Series], files: Sequence[str]) -> list[str]:
    """Return the last lines of the older scripts, followed by what failed."""
    kind = "GPUs" if all(series.config.device == "cuda" for series in all_series) else "CPU devices"
    counts = sorted({point.devices for series in all_series for point in series.good})
    tables = sorted(path for path in files if path.endswith(".csv"))
    lines = ["Summary:"]
    if counts:
        lines.append(f"Completed tests on {', '.join(map(str, counts))} {kind}")
        lines += ["Data available in:", *tables]
        if _GRAPH in files:
            lines.append(f"Data plotted in graph: {_GRAPH}")
    for series in all_series:
        for point in series.points:
            if not point.ok:
                devices = wording.format_device_count(point.devices)
                lines.append(f"Failed: {series.title} on {devices}: {point.reason}")
    return lines
