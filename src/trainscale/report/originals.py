"""The files that the older scripts wrote to the current directory, and the summary that they printed at the end.

The files are ``logs/<model>_b<batch>.csv`` and ``.svg``, ``csv_<framework>/`` and ``comparison_graph.svg``. All other
outputs are in the run's directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..analyse.series import Series
from . import charts, wording
from .csv_files import folder, series_csv, series_paths
from .drawing import to_svg

LOGS, GRAPH = "logs", "comparison_graph.svg"


def original_files(series: Sequence[Series], model_names: Mapping[str, str]) -> dict[str, str]:
    """Return path and content. ``model_names``: what the person called each model, which names its files."""
    configs = [one.config for one in series]
    log_paths = series_paths(configs, lambda _: LOGS, model_names)
    csv_paths = series_paths(configs, folder, model_names)
    files: dict[str, str] = {}
    for one in series:
        if one.good:
            files[f"{log_paths[one.config]}.csv"] = series_csv(one)
            files[f"{log_paths[one.config]}.svg"] = to_svg(charts.throughput_chart([one]), standalone=True)
            files[f"{csv_paths[one.config]}.csv"] = series_csv(one)
    if files:
        files[GRAPH] = to_svg(charts.speedup_chart(series), standalone=True)
    return files


def summary(series: Sequence[Series], files: Sequence[str]) -> list[str]:
    """Return the last lines of the older scripts, followed by what failed."""
    kind = "GPUs" if all(one.config.device == "cuda" for one in series) else "CPU devices"
    counts = sorted({point.devices for one in series for point in one.good})
    tables = sorted(path for path in files if path.endswith(".csv"))
    lines = ["Summary:"]
    if counts:
        lines += [f"Completed tests on {', '.join(map(str, counts))} {kind}", "Data available in:", *tables]
        lines.append(f"Data plotted in graph: {GRAPH}")
    for one in series:
        for point in one.points:
            if not point.ok:
                devices = wording.device_count(point.devices)
                lines.append(f"Failed: {one.title} on {devices}: {wording.reason(point)}")
    return lines
