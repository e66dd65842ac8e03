"""What the charts show: speed-up, images/s and efficiency against devices. How they look is in drawing.py.

One spec per chart serves both the SVG file and the interactive page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..analyse.series import Interval, Point, Series, common_unit
from . import numbers, wording
from .drawing import DECADES, OCTAVES, PERCENT, Frame, Plot, Row, Spec, draw


def speedup_chart(series: Sequence[Series], frame: Frame | None = None) -> Spec:
    """Speed-up over the series' own 1-device point, with the ideal line."""
    shown = _climbing(series)
    notes = ["Up and to the right is better."]
    left_out = [one.title for one in series if one.good and not one.has_baseline]
    if left_out:
        names = wording.join_names(left_out) if len(left_out) < 3 else f"{len(left_out)} series"
        notes.append(f"Not shown, for the want of a 1-device point: {names}.")
    plot = Plot(
        title="Speed-up against devices",
        notes=notes,
        y_title="Speed-up over 1 device",
        y_kind=OCTAVES,
        shown=shown,
        rows=[
            _row(one, point, point.speedup, f"Speed-up: {point.speedup.mean:.2f} · {_speed(point)}")
            for one in shown
            for point in one.good
            if point.speedup
        ],
        ideal=[{"devices": n, "value": n} for n in (1, _most_devices(shown))],
    )
    return draw(series, plot, frame or Frame())


def throughput_chart(series: Sequence[Series], frame: Frame | None = None) -> Spec:
    """Throughput of the whole cluster. The ideal line of each series starts at its smallest point."""
    shown = [one for one in series if one.good]
    unit = common_unit(series)
    ideal: list[Row] = []
    for one in shown:
        first, last = one.good[0], one.good[-1]
        for devices in (first.devices, last.devices):
            rate = _rate(first) / first.devices * devices
            ideal.append({"series": one.title, "devices": devices, "value": rate})
    plot = Plot(
        title=f"{unit.capitalize()} per second against devices",
        notes=["Up and to the right is better. Dashed: each series' own ideal."],
        y_title=f"{unit}/s, whole cluster",
        y_kind=DECADES,
        shown=shown,
        rows=[
            _row(one, point, point.samples_per_second, _speed(point))
            for one in shown
            for point in one.good
            if point.samples_per_second
        ],
        ideal=ideal,
    )
    return draw(series, plot, frame or Frame())


def efficiency_chart(series: Sequence[Series], frame: Frame | None = None) -> Spec:
    """Speed-up divided by devices, in per cent, from zero."""
    shown = _climbing(series)
    plot = Plot(
        title="Efficiency against devices",
        notes=["Higher is better."],
        y_title="Efficiency: speed-up / devices, %",
        y_kind=PERCENT,
        shown=shown,
        rows=[
            _row(one, point, point.efficiency.scaled(100), f"Efficiency: {_share(point)} · {_speed(point)}")
            for one in shown
            for point in one.good
            if point.efficiency
        ],
        ideal=[{"devices": n, "value": 100} for n in (1, _most_devices(shown))],
    )
    return draw(series, plot, frame or Frame())


def _climbing(series: Sequence[Series]) -> list[Series]:
    """The series that have a speed-up; not those of a lone 1-device point, which is 1 by definition."""
    related = [one for one in series if one.has_baseline]
    return [one for one in related if len(one.points) > 1] or related


def _row(series: Series, point: Point, value: Interval, text: str) -> Row:
    """One mark: where it lies, what a static picture says of it (``text``), and the lines of its tooltip."""
    rate = point.samples_per_second
    tooltip = {
        "Speed-up": f"{numbers.times(point.speedup)} {_limits(point.speedup)}",
        "Efficiency": numbers.efficiency(point.efficiency),
        "Cluster": f"{numbers.rate(_rate(point))} {point.unit}/s {numbers.plus_minus(rate)}",
        "Per device": f"{numbers.rate(_rate(point) / point.devices)} {point.unit}/s",
        "Step": f"{numbers.milliseconds(point.step_seconds)} ms",
        "Batch": f"{point.batch_per_device} per device, {point.global_batch} global",
    }
    return {
        "series": series.title,
        "devices": point.devices,
        "hosts": point.hosts,
        "value": value.mean,
        "low": value.low,
        "high": value.high,
        "text": f"{text} · {wording.devices_and_hosts(point)} · {series.title}",
        **{name: line.strip() for name, line in tooltip.items()},
    }


def _most_devices(series: Sequence[Series]) -> int:
    return max((point.devices for one in series for point in one.points), default=1)


def _rate(point: Point) -> float:
    return point.samples_per_second.mean if point.samples_per_second else math.nan


def _speed(point: Point) -> str:
    return f"{_rate(point):.2f} {point.unit}/s"


def _share(point: Point) -> str:
    return numbers.efficiency(point.efficiency)


def _limits(interval: Interval | None) -> str:
    limits = numbers.between(interval)
    return f"({limits})" if limits else ""
