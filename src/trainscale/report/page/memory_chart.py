"""The largest peak of memory of a rank against devices."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyse.series import Point, Series
from .. import numbers, wording
from ..drawing import PERCENT, Frame, Plot, Row, VegaSpec, draw

_GIB = 2**30


def find_memory_peak(point: Point) -> int | None:
    """Return the peak of a rank as the table in the terminal shows it: of its GPU, or on CPUs of its host."""
    if point.config.device == "cpu":
        return point.host_peak_bytes
    return point.nvml_peak_bytes if point.device_peak_bytes is None else point.device_peak_bytes


def has_memory(all_series: Sequence[Series]) -> bool:
    """Return whether memory can be drawn against devices. That of a single device count is only in the tables."""
    return any(len(series.points) > 1 and any(map(find_memory_peak, series.good)) for series in all_series)


def draw_memory(all_series: Sequence[Series], frame: Frame) -> VegaSpec:
    """Return the chart, from zero. The peak is the largest over ranks and repeats."""
    shown = [series for series in all_series if any(find_memory_peak(point) for point in series.good)]
    devices = {series.config.device for series in shown}
    kind = "host memory" if devices == {"cpu"} else "GPU memory" if "cpu" not in devices else "memory"
    plot = Plot(
        title="Memory against devices",
        notes=[f"Largest peak of {kind} of a rank. Lower is better."],
        y_title=f"Peak {kind} of a rank, GiB",
        y_kind=PERCENT,
        shown=shown,
        rows=[row for series in shown for point in series.good if (row := _make_row(series, point))],
        ideal=[],
    )
    return draw(all_series, plot, frame)


def _make_row(series: Series, point: Point) -> Row | None:
    peak = find_memory_peak(point)
    if not peak:
        return None
    size = numbers.format_size(peak)
    return {
        "series": series.title,
        "devices": point.devices,
        "hosts": point.hosts,
        "value": peak / _GIB,
        "low": None,
        "high": None,
        "text": f"Memory: {size} · {wording.format_devices_and_hosts(point)} · {series.title}",
        "Peak": size,
        "Host": numbers.format_size(point.host_peak_bytes),
        "Batch": f"{point.batch_per_device} per device, {point.global_batch} global",
    }
