"""The published curves for people: a list, and a curve with its efficiency, its source and its flags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.cells import cell_len

from ..published.curve import PublishedCurve, PublishedPoint
from ..published.flags import SENTENCES
from ..published.table import PREFIX
from ..worker.type_aliases import JsonObject
from . import numbers, wording
from .table import Grid

# Schema history
#     1  first version
PUBLISHED_SCHEMA = 1
_BAR_WIDTH = 10  # cells of 100 %
_FEWEST = 3  # columns of the list that every terminal shows
FLAG = "⚑"


def make_list_grid(curves: Sequence[PublishedCurve], width: int) -> Grid:
    """Return a row for each curve. The columns that matter least are left out until all fit; an ID is never cut."""
    header = ("ID", "devices", "efficiency", "network", "device", "scaling", "precision")
    rows = [_make_list_row(curve) for curve in curves]
    sources = len({curve.source for curve in curves})
    note = (
        f"{len(curves)} curve{'' if len(curves) == 1 else 's'} of {sources} source{'' if sources == 1 else 's'}."
        f" Efficiency: that of the largest point, relative to the smallest. {FLAG}: a figure is impossible,"
        " or is not what its source says it is; trainscale published ID explains it."
    )
    widths = [max(map(cell_len, cells)) + 2 for cells in zip(header, *rows, strict=True)]
    kept = next(count for count in range(len(header), 0, -1) if count <= _FEWEST or sum(widths[:count]) <= width)
    cells = tuple(row[:kept] for row in rows)
    return Grid("Published scaling results", header[:kept], cells, note, left=(0, 3, 4, 5, 6))


def make_curve_grid(curve: PublishedCurve) -> Grid:
    """Return the points of a curve. Columns without any value are left out."""
    header = ("devices", "hosts", "batch", "global", f"{curve.unit}/s", "speed-up", "efficiency", "")
    rows = [_format_row(curve, point) for point in curve.points]
    kept = [i for i in range(len(header)) if any(row[i] not in ("", numbers.MISSING) for row in rows)]
    cells = tuple(tuple(row[index] for index in kept) for row in rows)
    baseline = wording.format_device_count(curve.baseline.devices)
    note = f"Speed-up and efficiency are relative to {baseline}; the batch is that of a device. There are no intervals."
    left = tuple(place for place, index in enumerate(kept) if not header[index])
    return Grid(curve.title, tuple(header[index] for index in kept), cells, note, left=left)


def _make_list_row(curve: PublishedCurve) -> tuple[str, ...]:
    return (
        f"{curve.id}{f' {FLAG}' if curve.flags else ''}",
        f"{curve.baseline.devices}–{curve.most_devices}",
        numbers.format_percent(curve.compute_efficiency(curve.points[-1])),
        curve.network.title,
        curve.device or curve.hardware,
        curve.scaling or "not stated",
        curve.precision,
    )


def describe(curve: PublishedCurve) -> Iterator[tuple[str, str]]:
    """Yield what the source states, as names and texts, then the flags."""
    yield "ID", f"{PREFIX}{curve.id}"
    yield "network", curve.network_stated
    yield "hardware", curve.hardware
    yield "interconnect", curve.interconnect
    yield "framework", curve.framework_stated
    yield "strategy", curve.strategy_stated
    yield "precision", curve.precision_stated
    yield "data", curve.data or "not stated"
    yield "scaling", _describe_scaling(curve)
    yield "source", curve.source.citation
    yield "URL", curve.source.url
    if curve.note:
        yield "note", curve.note
    if any(point.stated and point.per_second is not None for point in curve.points):
        yield "derived", "the speeds are computed from what the source states"
    for point in curve.points:
        if point.stated or point.note:
            text = "; ".join(text for text in (point.stated, point.note) if text)
            yield wording.format_device_count(point.devices), text
    for flag in curve.flags:
        yield f"{FLAG} flag", SENTENCES[flag]


def render_published_json(curves: Sequence[PublishedCurve]) -> str:
    document = {"schema": PUBLISHED_SCHEMA, "curves": [encode_curve(curve) for curve in curves]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def encode_curve(curve: PublishedCurve) -> JsonObject:
    """Return all fields of a curve, with the speed-up and the efficiency of its points."""
    points = [
        {
            **asdict(point),
            "hosts": curve.count_hosts(point),
            "speedup": curve.compute_speedup(point),
            "efficiency": curve.compute_efficiency(point),
        }
        for point in curve.points
    ]
    flags = [{"name": flag, "sentence": SENTENCES[flag]} for flag in curve.flags]
    return {**asdict(curve), "title": curve.title, "flags": flags, "points": points}


def _format_row(curve: PublishedCurve, point: PublishedPoint) -> tuple[str, ...]:
    share = curve.compute_efficiency(point)
    return (
        numbers.format_integer(point.devices),
        numbers.format_integer(curve.count_hosts(point)),
        numbers.MISSING if point.batch_per_device is None else f"{point.batch_per_device:g}",
        numbers.format_integer(point.global_batch),
        numbers.format_rate(point.per_second),
        f"{curve.compute_speedup(point):.2f}×",
        f"{share * 100:.1f}{numbers.THIN}%",
        "━" * round(min(1.0, share) * _BAR_WIDTH),
    )


def _describe_scaling(curve: PublishedCurve) -> str:
    if curve.scaling is None:
        return "the batches are not stated"
    label = f"; the source calls it {curve.stated_scaling}" if curve.stated_scaling else ""
    return f"{curve.scaling}, by the batches{label}"
