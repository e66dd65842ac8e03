"""What the charts show: speed-up, throughput and efficiency against devices. drawing.py decides how they look.

The SVG file and the interactive page use the same spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..analyse.series import Interval, Point, Series, find_common_unit
from . import numbers, wording
from .drawing import DECADES, OCTAVES, PERCENT, Frame, Plot, Row, VegaSpec, draw


def draw_speedup(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of speed-up over each series' own 1-device point, with the ideal line."""
    shown = _select_with_speedup(all_series)
    notes = ["Up and to the right is better."]
    without_baseline = [series.title for series in all_series if series.good and not series.has_baseline]
    if without_baseline:
        names = wording.name_few(without_baseline)
        notes.append(f"Not shown, because there is no 1-device point: {names}.")
    plot = Plot(
        title="Speed-up against devices",
        notes=notes,
        y_title="Speed-up over 1 device",
        y_kind=OCTAVES,
        shown=shown,
        rows=[
            _make_row(series, point, point.speedup, f"Speed-up: {point.speedup.mean:.2f} · {_format_speed(point)}")
            for series in shown
            for point in series.good
            if point.speedup
        ],
        ideal=[{"devices": n, "value": n} for n in (1, _find_most_devices(shown))],
    )
    return draw(all_series, plot, frame or Frame())


def draw_throughput(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of cluster-wide throughput. Each series' ideal line starts at its smallest point."""
    shown = [series for series in all_series if series.good]
    unit = find_common_unit(all_series)
    ideal: list[Row] = []
    for series in shown:
        first, last = series.good[0], series.good[-1]
        for devices in (first.devices, last.devices):
            rate = _find_rate(first) / first.devices * devices
            ideal.append({"series": series.title, "devices": devices, "value": rate})
    plot = Plot(
        title=f"{unit.capitalize()} per second against devices",
        notes=["Up and to the right is better. Dashed: each series' own ideal."],
        y_title=f"{unit}/s, whole cluster",
        y_kind=DECADES,
        shown=shown,
        rows=[
            _make_row(series, point, point.samples_per_second, _format_speed(point))
            for series in shown
            for point in series.good
            if point.samples_per_second
        ],
        ideal=ideal,
    )
    return draw(all_series, plot, frame or Frame())


def draw_throughput_per_device(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of the throughput of a device, from zero."""
    shown = [series for series in all_series if series.good]
    unit = find_common_unit(all_series)
    plot = Plot(
        title=f"{unit.capitalize()} per second and device against devices",
        notes=["Higher is better; level is ideal."],
        y_title=f"{unit}/s, per device",
        y_kind=PERCENT,
        shown=shown,
        rows=[
            _make_row(series, point, point.samples_per_second.scaled(1 / point.devices), _format_speed(point))
            for series in shown
            for point in series.good
            if point.samples_per_second
        ],
        ideal=[],
    )
    return draw(all_series, plot, frame or Frame())


def draw_efficiency(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of speed-up divided by devices, in per cent, from zero."""
    shown = _select_with_speedup(all_series)
    plot = Plot(
        title="Efficiency against devices",
        notes=["Higher is better."],
        y_title="Efficiency: speed-up / devices, %",
        y_kind=PERCENT,
        shown=shown,
        rows=[
            _make_row(
                series,
                point,
                point.efficiency.scaled(100),
                f"Efficiency: {_format_share(point)} · {_format_speed(point)}",
            )
            for series in shown
            for point in series.good
            if point.efficiency
        ],
        ideal=[{"devices": n, "value": 100} for n in (1, _find_most_devices(shown))],
    )
    return draw(all_series, plot, frame or Frame())


def _select_with_speedup(all_series: Sequence[Series]) -> list[Series]:
    """Return the series that have a speed-up, without those of a single 1-device point, which is 1 by definition."""
    with_baseline = [series for series in all_series if series.has_baseline]
    return [series for series in with_baseline if len(series.points) > 1] or with_baseline


def _make_row(series: Series, point: Point, value: Interval, text: str) -> Row:
    """Return one mark: its position, its description in a static picture (``text``), and the lines of its tooltip."""
    rate = point.samples_per_second
    tooltip = {
        "Speed-up": f"{numbers.format_times(point.speedup)} {_format_limits(point.speedup)}",
        "Efficiency": numbers.format_efficiency(point.efficiency),
        "Cluster": f"{numbers.format_rate(_find_rate(point))} {point.unit}/s {numbers.format_plus_minus(rate)}",
        "Per device": f"{numbers.format_rate(_find_rate(point) / point.devices)} {point.unit}/s",
        "Step": f"{numbers.format_milliseconds(point.step_seconds)} ms",
        "Batch": f"{point.batch_per_device} per device, {point.global_batch} global"
        if point.global_batch
        else "not stated",
    }
    return {
        "series": series.title,
        "devices": point.devices,
        "hosts": point.hosts,
        "value": value.mean,
        "low": value.low,
        "high": value.high,
        "text": f"{text} · {wording.format_devices_and_hosts(point)} · {series.title}",
        **{name: line.strip() for name, line in tooltip.items()},
    }


def _find_most_devices(all_series: Sequence[Series]) -> int:
    return max((point.devices for series in all_series for point in series.points), default=1)


def _find_rate(point: Point) -> float:
    return point.samples_per_second.mean if point.samples_per_second else math.nan


def _format_speed(point: Point) -> str:
    return f"{_find_rate(point):.2f} {point.unit}/s"


def _format_share(point: Point) -> str:
    return numbers.format_efficiency(point.efficiency)


def _format_limits(interval: Interval | None) -> str:
    limits = numbers.format_limits(interval)
    return f"({limits})" if limits else ""
