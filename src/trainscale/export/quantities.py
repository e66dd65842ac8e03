"""The quantities of a point for programs that collect numbers by name, and the settings of a series as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..analyse.series import Interval, Point, Series
from ..report.csv_files import make_series_paths, make_slug
from ..spec.config import Config


@dataclass(frozen=True)
class NamedValue:
    """A number of a point. ``unit`` is empty for a ratio."""

    name: str
    unit: str
    meaning: str
    value: float


def list_point_quantities(point: Point) -> list[NamedValue]:
    """Return the quantities that a point has. A point without a result has none."""
    per_second = f"{make_unit_name(point)}_per_second"
    numbers = [
        ("step_seconds", "s", "Median step", point.step_seconds),
        ("startup_seconds", "s", "Start of a process to its first step", point.startup_seconds),
        ("device_peak_bytes", "bytes", "Memory by the framework's allocator", point.device_peak_bytes),
        ("nvml_peak_bytes", "bytes", "Memory by the GPUs' driver", point.nvml_peak_bytes),
        ("host_peak_bytes", "bytes", "Memory of a process on its host", point.host_peak_bytes),
        ("valid_accuracy", "", "Validation accuracy after the last epoch", _find_accuracy(point)),
    ]
    return [
        *_make_limits(per_second, f"{point.unit}/s", "Throughput of the whole cluster", point.samples_per_second),
        *_make_limits("speedup", "", "Throughput over that of one device of the same series", point.speedup),
        *_make_limits("efficiency", "", "Speed-up divided by devices", point.efficiency),
        *(NamedValue(name, unit, meaning, value) for name, unit, meaning, value in numbers if value is not None),
    ]


def _make_limits(name: str, unit: str, meaning: str, interval: Interval | None) -> list[NamedValue]:
    """Return a mean under the plain name, and the ends of its interval, if it has one."""
    if interval is None:
        return []
    values = [NamedValue(name, unit, meaning, interval.mean)]
    if interval.low is not None and interval.high is not None:
        values.append(NamedValue(f"{name}_low", unit, f"{meaning}: lower end of the 95 % interval", interval.low))
        values.append(NamedValue(f"{name}_high", unit, f"{meaning}: upper end of the 95 % interval", interval.high))
    return values


def make_unit_name(point: Point) -> str:
    """Return the unit of a point's samples as a part of a name. A plug-in chooses its own."""
    return re.sub(r"[^A-Za-z0-9]+", "_", point.unit)


def _find_accuracy(point: Point) -> float | None:
    return point.learning.valid_accuracy.mean if point.learning else None


def make_series_names(all_series: Sequence[Series]) -> dict[Config, str]:
    """Return a name for each series that is unique in the run and needs no quoting: ``torch_alexnet_b32``."""
    paths = make_series_paths([series.config for series in all_series], lambda config: make_slug(config.framework))
    return {config: path.replace("/", "_") for config, path in paths.items()}


def list_series_settings(series: Series) -> dict[str, str]:
    """Return the config of a series and the versions that it ran with, as text by name."""
    settings = {name: str(value) for name, value in asdict(series.config).items() if value is not None}
    return {**settings, **{f"version_{make_slug(name)}": version for name, version in series.versions.items()}}
