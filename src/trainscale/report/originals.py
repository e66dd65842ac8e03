"""The files that the older scripts left in the current directory: ``logs/<model>_b<batch>.csv`` and ``.svg``,
``csv_<framework>/`` and ``comparison_graph.svg``, and their last lines. What else there is, is in the run's directory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ..analyse.series import Series
from ..analyse.titles import differences
from ..spec.config import Config
from . import charts, csv_files, words
from .drawing import to_svg

LOGS, GRAPH = "logs", "comparison_graph.svg"


def original_files(series: Sequence[Series], typed: Mapping[str, str]) -> dict[str, str]:
    """Path to content. ``typed``: what a person called each model, which names its files."""
    tables = csv_files.series_files(series)
    ours = csv_files.file_names([one.config for one in series])
    logs = _names([one.config for one in series], typed, lambda _: LOGS)
    folders = _names([one.config for one in series], typed, csv_files.folder)
    files: dict[str, str] = {}
    for one in series:
        if not one.good:
            continue
        config, table = one.config, tables[ours[one.config]]
        files[f"{logs[config]}.csv"] = table
        files[f"{logs[config]}.svg"] = to_svg(charts.images_chart([one]), standalone=True)
        files[f"{folders[config]}.csv"] = table
    if files:
        files[GRAPH] = to_svg(charts.speedup_chart(series), standalone=True)
    return files


def _names(configs: Sequence[Config], typed: Mapping[str, str], folder: Callable[[Config], str]) -> dict[Config, str]:
    """``<folder>/<model>_b<batch>``; where several series would share it, with what tells them apart."""
    alike: defaultdict[str, list[Config]] = defaultdict(list)
    for config in configs:
        model = csv_files.slug(typed.get(config.model, config.model))
        alike[f"{folder(config)}/{model}_b{config.batch}"].append(config)
    names = {}
    for base, group in alike.items():
        found = {
            config: "".join(f"_{csv_files.slug(word)}" for word in parts)
            for config, parts in differences(group).items()
        }
        clash = len(set(found.values())) < len(group)
        names.update({config: f"{base}{tail}{f'_{config.key}' if clash else ''}" for config, tail in found.items()})
    return names


def summary(series: Sequence[Series], files: Sequence[str]) -> list[str]:
    """The last lines of the older scripts, and after them what failed."""
    kind = "GPUs" if all(one.config.device == "cuda" for one in series) else "CPU devices"
    counts = sorted({point.devices for one in series for point in one.good})
    tables = sorted(path for path in files if path.endswith(".csv"))
    lines = ["Summary:"]
    if counts:
        lines += [f"Completed tests on {', '.join(map(str, counts))} {kind}", "Data available in:", *tables]
        lines.append(f"Data plotted in graph: {GRAPH}")
    for one in series:
        for point in one.points:
            if not point.images_per_second:
                lines.append(f"Failed: {one.title} on {words.devices(point.devices)}: {words.reason(point)}")
    return lines
