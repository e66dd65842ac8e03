"""The files that the older scripts wrote to the current directory, and the summary that they printed at the end.

The files are ``logs/<model>_b<batch>.csv`` and ``.svg``, ``csv_<framework>/`` and ``comparison_graph.svg``. All other
outputs are in the run's directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..analyse.series import Series
from . import charts, wording
from .csv_json import make_series_paths, name_folder, render_series_csv
from .drawing import to_svg
from .drawing_process import ChartsUnavailable

LOGS, GRAPH = "logs", "comparison_graph.svg"


def make_original_files(all_series: Sequence[Series], model_names: Mapping[str, str]) -> dict[str, str]:
    """Return path and content. ``model_names``: what the person called each model, which names its files."""
    configs = [series.config for series in all_series]
    log_paths = make_series_paths(configs, lambda _: LOGS, model_names)
    csv_paths = make_series_paths(configs, name_folder, model_names)
    files: dict[str, str] = {}
    for series in all_series:
        if series.good:
            files[f"{log_paths[series.config]}.csv"] = render_series_csv(series)
            files[f"{csv_paths[series.config]}.csv"] = render_series_csv(series)
    try:
        pictures = {
            f"{log_paths[series.config]}.svg": to_svg(charts.draw_throughput([series]), standalone=True)
            for series in all_series
            if series.good
        }
        return {**files, **pictures, GRAPH: to_svg(charts.draw_speedup(all_series), standalone=True)} if files else {}
    except ChartsUnavailable:
        return files


def list_summary_lines(all_series: Sequence[Series], files: Sequence[str]) -> list[str]:
    """Return the last lines of the older scripts, followed by what failed."""
    kind = "GPUs" if all(series.config.device == "cuda" for series in all_series) else "CPU devices"
    counts = sorted({point.devices for series in all_series for point in series.good})
    tables = sorted(path for path in files if path.endswith(".csv"))
    lines = ["Summary:"]
    if counts:
        lines += [f"Completed tests on {', '.join(map(str, counts))} {kind}", "Data available in:", *tables]
        if GRAPH in files:
            lines.append(f"Data plotted in graph: {GRAPH}")
    for series in all_series:
        for point in series.points:
            if not point.ok:
                devices = wording.format_device_count(point.devices)
                lines.append(f"Failed: {series.title} on {devices}: {point.reason}")
    return lines
