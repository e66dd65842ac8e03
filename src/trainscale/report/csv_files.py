"""The CSV files: a small file without a header for each series, and results.csv with every value of every point."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ..analyse.learning import Learning, ToAccuracy
from ..analyse.series import Interval, Point, Series, find_common_unit
from ..analyse.titles import describe_differences
from ..record.witness import REFUTED
from ..spec.config import Config
from . import wording
from .csv_cells import make_csv_cell


def make_series_files(all_series: Sequence[Series], label: str = "") -> dict[str, str]:
    """Return path (``csv_torch/alexnet_b512.csv``) and content for every series with a result.

    In a report of several runs the names end with the label of the run.
    """
    paths = make_series_paths([series.config for series in all_series])
    end = f"_{make_slug(label)}.csv" if label else ".csv"
    return {f"{paths[series.config]}{end}": render_series_csv(series) for series in all_series if series.good}


def render_series_csv(series: Series) -> str:
    """Return lines ``devices,samples_per_second``: no header, cluster-wide, ascending, good points only."""
    return "".join(f"{point.devices},{_format_speed(point)}\n" for point in series.good)


def name_folder(config: Config) -> str:
    return f"csv_{make_slug(config.framework)}"


def make_series_paths(
    configs: Sequence[Config],
    folder_of: Callable[[Config], str] = name_folder,
    model_names: Mapping[str, str] = MappingProxyType({}),
) -> dict[Config, str]:
    """Return ``<folder>/<model>_b<batch>`` for each config. Where several would share it, what differs is appended.

    ``model_names`` maps a model to the name that its files get instead of its own.
    """
    alike: defaultdict[str, list[Config]] = defaultdict(list)
    for config in configs:
        model = make_slug(model_names.get(config.model, config.model))
        alike[f"{folder_of(config)}/{model}_b{config.batch}"].append(config)
    paths = {}
    for base, group in alike.items():
        suffixes = {
            config: "".join(f"_{make_slug(part)}" for part in parts)
            for config, parts in describe_differences(group).items()
        }
        if len(set(suffixes.values())) < len(group):  # e.g. models a:b and a_b, alike once they are file names
            suffixes = {config: f"{suffix}_{config.key}" for config, suffix in suffixes.items()}
        paths.update({config: f"{base}{suffix}" for config, suffix in suffixes.items()})
    return paths


def make_slug(text: str) -> str:
    """Return a file name that needs no quoting: ``ps2`` for ``ps:2``, ``timm_vit`` for ``timm:vit``."""
    joined = re.sub(r":(?=\d+$)", "", text)
    return re.sub(r"[^A-Za-z0-9.-]+", "_", joined).strip("_.-") or "model"


def render_results_csv(all_series: Sequence[Series]) -> str:
    """Return one row per point, good or failed, with full precision. Empty cells are values that do not exist."""
    return _write_csv(_make_all_columns(all_series), all_series)


def render_joint_csv(runs: Sequence[tuple[str, Sequence[Series]]]) -> str:
    """Return the same table for several runs, with their labels in the first column, ``run``."""
    all_series = [series for _, of_run in runs for series in of_run]
    labels = {series.title: label for label, of_run in runs for series in of_run}
    return _write_csv({"run": lambda series, _: labels[series.title], **_make_all_columns(all_series)}, all_series)


def _make_all_columns(all_series: Sequence[Series]) -> dict[str, Column]:
    columns = _make_columns(find_common_unit(all_series))
    if any(series.config.allocator != Config.allocator for series in all_series):
        columns |= _make_config_columns("allocator")
    if any(point.compilation for series in all_series for point in series.points):  # not in older journals
        columns |= _make_point_columns("compilation")
    return columns


def _write_csv(columns: Mapping[str, Column], all_series: Sequence[Series]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for series in all_series:
        for point in series.points:
            values = [column(series, point) for column in columns.values()]
            writer.writerow(map(make_csv_cell, values))
    return text.getvalue()


def find_framework_version(series: Series) -> str | None:
    """Return the first of a framework's versions, which is its own."""
    return next(iter(series.versions.values()), None)


def _format_speed(point: Point) -> str:
    """Format with at most three decimals; below 1 sample/s with three significant digits, so that it is never 0."""
    value = point.samples_per_second.mean if point.samples_per_second else 0.0
    text = f"{value:.3f}" if value >= 1 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


Column = Callable[[Series, Point], Any]


def _make_columns(unit: str) -> dict[str, Column]:
    """Return name and value of every column."""
    return {
        **_make_config_columns("framework", "model"),
        "title": lambda series, _: series.title,
        "parameters": lambda series, _: series.parameters,
        **_make_config_columns(*(field.name for field in fields(Config) if field.name not in _OTHER_COLUMNS)),
        **_make_point_columns("devices", "hosts", "batch_per_device", "global_batch", "repeats"),
        **_make_limit_columns(f"{unit}_per_second_cluster", lambda point: point.samples_per_second),
        "plus_minus_relative": lambda _, point: point.samples_per_second and point.samples_per_second.relative,
        f"{unit}_per_second_per_device": lambda _, point: _compute_speed_per_device(point),
        f"jitter_{unit}_per_second_cluster": lambda _, point: point.jitter,
        **_make_limit_columns("speedup", lambda point: point.speedup),
        **_make_limit_columns("efficiency", lambda point: point.efficiency),
        **_make_limit_columns("efficiency_versus_local", lambda point: point.efficiency_versus_local),
        "step_seconds_median": lambda _, point: point.step_seconds,
        **_make_limit_columns("input_overhead", lambda point: point.input_overhead),
        **_make_point_columns("waiting_share"),
        **_make_learning_columns(),
        **_make_point_columns("startup_seconds", "first_step_seconds"),
        **_make_point_columns("device_peak_bytes", "device_peak_bytes_sum", "nvml_peak_bytes", "nvml_peak_bytes_sum"),
        **_make_point_columns("host_peak_bytes", "host_peak_bytes_sum", "loaders_peak_bytes", "status"),
        "reason": lambda _, point: wording.find_reason(point),
        "flags": lambda _, point: "; ".join(point.flags),
        "framework_version": lambda series, _: find_framework_version(series),
        "parity": lambda series, _: series.parity,
        "witness": lambda _, point: _find_witness_state(point),
    }


# These have columns of their own. A batch is given per device and globally, so that nobody needs the scaling mode. The
# allocator has a column only where it is not the default, so that older runs give the same file.
_OTHER_COLUMNS = {"framework", "model", "batch", "allocator"}


def _make_learning_columns() -> dict[str, Column]:
    """Return the columns that have values only where a point trains to an accuracy."""

    def interval(get: Callable[[Learning], Interval]) -> Callable[[Point], Interval | None]:
        return lambda point: get(point.learning) if point.learning else None

    def target(get: Callable[[ToAccuracy], Any]) -> Callable[[Point], Any]:
        return lambda point: get(point.learning.to_accuracy) if point.learning and point.learning.to_accuracy else None

    def column(get: Callable[[Point], Any]) -> Column:
        return lambda _, point: get(point)

    return {
        "epochs_trained": lambda _, point: point.learning.last.epoch if point.learning else None,
        **_make_limit_columns("training_seconds", interval(lambda learning: learning.training_seconds)),
        **_make_limit_columns("epoch_seconds", interval(lambda learning: learning.epoch_seconds)),
        **_make_limit_columns("train_accuracy", interval(lambda learning: learning.train_accuracy)),
        **_make_limit_columns("valid_accuracy", interval(lambda learning: learning.valid_accuracy)),
        "accuracy_target": column(target(lambda reached: reached.target)),
        "repeats_to_accuracy": column(target(lambda reached: reached.reached)),
        "epochs_to_accuracy": column(target(lambda reached: reached.epochs)),
        **_make_limit_columns("seconds_to_accuracy", target(lambda reached: reached.seconds)),
    }


def _make_config_columns(*names: str) -> dict[str, Column]:
    def column(value: Callable[[Config], Any]) -> Column:
        return lambda series, _: value(series.config)

    return {name: column(attrgetter(name)) for name in names}


def _make_point_columns(*names: str) -> dict[str, Column]:
    def column(value: Callable[[Point], Any]) -> Column:
        return lambda _, point: value(point)

    return {name: column(attrgetter(name)) for name in names}


def _make_limit_columns(name: str, interval: Callable[[Point], Interval | None]) -> dict[str, Column]:
    """Return three columns for an interval: the mean under the plain name, then its limits."""

    def column(value: Callable[[Interval], Any]) -> Column:
        return lambda _, point: value(limits) if (limits := interval(point)) else None

    mean, low, high = (column(attrgetter(end)) for end in ("mean", "low", "high"))
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _find_witness_state(point: Point) -> str | None:
    """Return ``proven``, ``unproven`` or ``refuted``; None in journals that are older than the witness."""
    if point.ok:
        return point.witness
    return REFUTED if point.status == REFUTED else None


def _compute_speed_per_device(point: Point) -> float | None:
    return point.samples_per_second.mean / point.devices if point.samples_per_second else None
