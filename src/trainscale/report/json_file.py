"""results.json: runs, their series and points, and what every statistic means. The names contain the units."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..analyse.boundary import find_host_boundary
from ..analyse.checks import make_busy_flag
from ..analyse.learning import Learning
from ..analyse.series import Interval, Point, Series, find_common_unit
from ..record.run import RunInfo
from ..record.trial import Failure
from ..worker.type_aliases import JsonObject
from . import wording
from .definitions import make_definitions
from .reported_run import ReportedRun
from .run_differences import make_difference_grid

# Schema history
#     1  first version
RESULTS_SCHEMA = 1


def render_results_json(run: RunInfo, all_series: Sequence[Series]) -> str:
    document = {
        "schema": RESULTS_SCHEMA,
        "run": run.to_dict(),
        "definitions": make_definitions(find_common_unit(all_series)),
        "series": [_encode_series(series) for series in all_series],
    }
    return json.dumps(_replace_unsupported(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_joint_json(runs: Sequence[ReportedRun]) -> str:
    """Return the document of several runs: each with its label and its series, and in what they differ."""
    grid = make_difference_grid(runs)
    document = {
        "schema": RESULTS_SCHEMA,
        "definitions": make_definitions(find_common_unit(series for run in runs for series in run.series)),
        "differences": {row[0]: dict(zip(grid.header[1:], row[1:], strict=True)) for row in grid.rows},
        "runs": [
            {
                "label": run.label,
                "run": run.recorded.run.to_dict(),
                "series": [_encode_series(series) for series in run.series],
            }
            for run in runs
        ],
    }
    return json.dumps(_replace_unsupported(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _encode_series(series: Series) -> JsonObject:
    boundary = find_host_boundary(series.points)
    return {
        "title": series.title,
        "headline": wording.make_headline(series),
        "config": series.config.to_dict(),
        "parameters": series.parameters,
        "versions": series.versions,
        "parity": asdict(series.verdict) if series.verdict else None,
        "host_boundary": asdict(boundary) if boundary else None,
        "points": [_encode_point(point) for point in series.points],
    }


def _encode_point(point: Point) -> JsonObject:
    rate = point.samples_per_second
    return {
        "devices": point.devices,
        "hosts": point.hosts,
        "batch_per_device": point.batch_per_device,
        "global_batch": point.global_batch,
        "status": point.status,
        "repeats": point.repeats,
        f"{point.unit}_per_second_cluster": _encode_interval(rate),
        f"{point.unit}_per_second_per_device": _encode_interval(rate.scaled(1 / point.devices) if rate else None),
        "plus_minus_relative": rate.relative if rate else None,
        f"jitter_{point.unit}_per_second_cluster": point.jitter,
        "speedup": _encode_interval(point.speedup),
        "efficiency": _encode_interval(point.efficiency),
        "efficiency_versus_local": _encode_interval(point.efficiency_versus_local),
        "step_seconds_median": point.step_seconds,
        "startup_seconds": point.startup_seconds,
        "first_step_seconds": point.first_step_seconds,
        **({"compilation": point.compilation} if point.compilation else {}),  # not in older journals
        "device_peak_bytes": point.device_peak_bytes,
        "device_peak_bytes_sum": point.device_peak_bytes_sum,
        "nvml_peak_bytes": point.nvml_peak_bytes,
        "nvml_peak_bytes_sum": point.nvml_peak_bytes_sum,
        "nvml_note": point.nvml_note,
        "host_peak_bytes": point.host_peak_bytes,
        "host_peak_bytes_sum": point.host_peak_bytes_sum,
        "loaders_peak_bytes": point.loaders_peak_bytes,
        "input_overhead": _encode_interval(point.input_overhead),
        "waiting_share": point.waiting_share,
        "learning": _encode_learning(point.learning) if point.learning else None,
        "witness": asdict(point.verdict) if point.verdict else None,
        **({"other_cores": point.other_cores} if make_busy_flag(point.other_cores) else {}),
        "flags": list(point.flags),
        "failures": [_encode_failure(failure) for failure in point.failures],
    }


def _encode_failure(failure: Failure) -> JsonObject:
    """Return a failure; one that blames no host has no such key, as before there were hosts in failures."""
    return {name: value for name, value in asdict(failure).items() if name != "host" or value}


def _encode_learning(learning: Learning) -> JsonObject:
    return {**asdict(learning), "epochs_trained": learning.last.epoch}


def _encode_interval(interval: Interval | None) -> dict[str, float | None] | None:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high} if interval else None


def _replace_unsupported(value: Any) -> Any:
    """Replace what JSON cannot express: NaN and infinity by null, other types (a path) by text."""
    if isinstance(value, dict):
        return {str(key): _replace_unsupported(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_unsupported(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
