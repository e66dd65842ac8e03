"""The CSV files: one small file per series, as the seeds wrote them, and results.csv with everything."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from ..analyse.learning import ToAccuracy
from ..analyse.series import Interval, Point, Series
from ..analyse.titles import differences
from ..spec.config import Config
from . import words


def series_files(series: Sequence[Series]) -> dict[str, str]:
    """Path (``csv_torch/alexnet_b512.csv``) to content, for every series with a result.

    Lines are ``n,images_per_sec``: no header, cluster-wide, ascending. A point that failed has no line.
    """
    names = file_names([one.config for one in series])
    files = {}
    for one in series:
        if one.good:
            lines = [f"{point.devices},{_short(point)}\n" for point in one.good]
            files[names[one.config]] = "".join(lines)
    return files


def file_names(configs: Sequence[Config]) -> dict[Config, str]:
    """``csv_<framework>/<model>_b<batch>.csv``; where series would share it, with what tells them apart."""
    alike: defaultdict[str, list[Config]] = defaultdict(list)
    for config in configs:
        alike[f"{folder(config)}/{slug(config.model)}_b{config.batch}"].append(config)
    names = {}
    for base, group in alike.items():
        suffixes = {config: "".join(f"_{slug(word)}" for word in found) for config, found in differences(group).items()}
        if len(set(suffixes.values())) < len(group):  # e.g. models a:b and a_b, alike once they are file names
            suffixes = {config: f"{suffix}_{config.key}" for config, suffix in suffixes.items()}
        names.update({config: f"{base}{suffix}.csv" for config, suffix in suffixes.items()})
    return names


def folder(config: Config) -> str:
    return f"csv_{slug(config.framework)}"


def slug(text: str) -> str:
    """A file name that needs no quoting: ``ps:2`` is ps2, ``timm:vit`` is timm_vit."""
    joined = re.sub(r":(?=\d+$)", "", text)
    return re.sub(r"[^A-Za-z0-9.-]+", "_", joined).strip("_.-") or "model"


def results_csv(series: Sequence[Series]) -> str:
    """One row per point, good or failed, with full precision. Empty cells are values that do not exist."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in series:
        for point in one.points:
            values = [column(one, point) for column in _COLUMNS.values()]
            writer.writerow(["" if value is None else value for value in values])
    return text.getvalue()


def framework_version(series: Series) -> str | None:
    """The first of a framework's versions is its own."""
    return next(iter(series.versions.values()), None)


def _short(point: Point) -> str:
    """Three decimals at most, as the seeds had; below 1 image/s, three significant digits: never a 0."""
    value = point.images_per_second.mean if point.images_per_second else 0.0
    text = f"{value:.3f}" if value >= 1 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


Column = Callable[[Series, Point], Any]


def _of_config(*names: str) -> dict[str, Column]:
    def column(name: str) -> Column:
        return lambda series, _: getattr(series.config, name)

    return {name: column(name) for name in names}


def _of_point(*names: str) -> dict[str, Column]:
    def column(name: str) -> Column:
        return lambda _, point: getattr(point, name)

    return {name: column(name) for name in names}


def _limits(name: str, interval: Callable[[Point], Interval | None]) -> dict[str, Column]:
    """Three columns for an interval: the mean under the plain name, then its limits."""

    def column(end: str) -> Column:
        return lambda _, point: getattr(interval(point), end, None)

    return {name: column("mean"), f"{name}_low": column("low"), f"{name}_high": column("high")}


# Columns of their own; a batch is given per device and globally, which needs no scaling mode to be understood.
_ELSEWHERE = {"framework", "model", "batch"}
_COLUMNS: dict[str, Column] = {
    **_of_config("framework", "model"),
    "title": lambda series, _: series.title,
    "parameters": lambda series, _: series.parameters,
    **_of_config(*(field.name for field in fields(Config) if field.name not in _ELSEWHERE)),
    **_of_point("devices", "hosts", "batch_per_device", "global_batch", "repeats"),
    **_limits("images_per_second_cluster", lambda point: point.images_per_second),
    "plus_minus_relative": lambda _, point: getattr(point.images_per_second, "relative", None),
    "images_per_second_per_device": lambda _, point: _per_device(point),
    "jitter_images_per_second_cluster": lambda _, point: point.jitter,
    **_limits("speedup", lambda point: point.speedup),
    **_limits("efficiency", lambda point: point.efficiency),
    **_limits("efficiency_versus_local", lambda point: point.efficiency_versus_local),
    "step_seconds_median": lambda _, point: point.step_seconds,
    **_limits("input_overhead", lambda point: point.input_overhead),
    **_of_point("waiting_share"),
    "epochs_trained": lambda _, point: point.learning.last.epoch if point.learning else None,
    **_limits("training_seconds", lambda point: getattr(point.learning, "training_seconds", None)),
    **_limits("epoch_seconds", lambda point: getattr(point.learning, "epoch_seconds", None)),
    **_limits("train_accuracy", lambda point: getattr(point.learning, "train_accuracy", None)),
    **_limits("valid_accuracy", lambda point: getattr(point.learning, "valid_accuracy", None)),
    "accuracy_target": lambda _, point: getattr(_to_accuracy(point), "target", None),
    "repeats_to_accuracy": lambda _, point: getattr(_to_accuracy(point), "reached", None),
    "epochs_to_accuracy": lambda _, point: getattr(_to_accuracy(point), "epochs", None),
    **_limits("seconds_to_accuracy", lambda point: getattr(_to_accuracy(point), "seconds", None)),
    **_of_point("startup_seconds", "first_step_seconds"),
    **_of_point("device_peak_bytes", "device_peak_bytes_sum", "nvml_peak_bytes", "nvml_peak_bytes_sum"),
    **_of_point("host_peak_bytes", "host_peak_bytes_sum", "loaders_peak_bytes", "status"),
    "reason": lambda _, point: words.reason(point),
    "flags": lambda _, point: "; ".join(point.flags),
    "framework_version": lambda series, _: framework_version(series),
    "parity": lambda series, _: series.parity.state if series.parity else None,
}


def _to_accuracy(point: Point) -> ToAccuracy | None:
    return point.learning.to_accuracy if point.learning else None


def _per_device(point: Point) -> float | None:
    return point.images_per_second.mean / point.devices if point.images_per_second else None
