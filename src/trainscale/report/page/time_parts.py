"""Where the time of a step went: a bar for each point, split into the parts of its explanation; also as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import altair as alt

from ...questions.explain.causes import CAUSES, ExplainedPart
from ...questions.explain.explain import PointExplanation
from ...questions.explain.text import (
    describe_verdict,
    format_limits,
    format_milliseconds,
    list_notes,
    round_to_percents,
)
from .. import wording
from ..drawing import INK, Frame, Row, VegaSpec, apply_theme, chart_rows, without_schema_checks
from ..numbers import THIN, format_integer, format_significant
from ..table import Grid

MOST_BARS = 24
_BAR, _BAR_STEP, _LINE = 18, 46, 15  # pixels of a bar, from bar to bar, and of further lines of the name above it
_LETTER, _MOST_LINES = 6, 2  # pixels of an average letter; lines of a name
# Paul Tol's bright scheme for single causes; browns and greys for causes that the records do not separate.
_COLOURS = dict(zip(CAUSES, ("#4477AA", "#CCBB44", "#EE6677", "#AA3377", "#228833", "#66CCEE", "#BBBBBB"), strict=True))
_TOGETHER = ("#997755", "#777788", "#BB9966", "#555566")


def choose_bars(points: Sequence[PointExplanation]) -> list[PointExplanation]:
    """Return the points that are drawn: all, or if these are too many, the largest of each series."""
    if len(points) <= MOST_BARS:
        return list(points)
    largest: dict[str, PointExplanation] = {}
    for point in points:
        if point.title not in largest or point.devices > largest[point.title].devices:
            largest[point.title] = point
    return list(largest.values())[:MOST_BARS]


@without_schema_checks
def draw_time_parts(points: Sequence[PointExplanation], frame: Frame) -> VegaSpec:
    """Return stacked bars of the parts of a step, in per cent."""
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    names = [_name_point(point, with_titles) for point in shown]
    rows = [row for name, point in zip(names, shown, strict=True) for row in _make_rows(name, point)]
    labels = list(dict.fromkeys(row["cause"] for row in rows))
    headings = [textwrap.wrap(name, frame.width // _LETTER)[:_MOST_LINES] for name in names]
    step = _BAR_STEP + _LINE * (max(map(len, headings)) - 1)
    outer = (step - _BAR) / step * 0.75  # room for the name above the first bar
    band = alt.Scale(paddingInner=1 - _BAR / step, paddingOuter=outer, domain=names)
    y = alt.Y("point:N", sort=names, axis=None, scale=band)
    axis = alt.Axis(labelFlush=False)  # flush labels at the ends come too close to their neighbours
    x = alt.X("from:Q", title="Share of the step, %", scale=alt.Scale(domain=[0, 100], nice=False), axis=axis)
    widest = max(map(len, labels))
    legend = alt.Legend(
        title=None,
        orient="bottom",
        direction="horizontal",
        columns=max(1, min(len(labels), frame.width // (36 + 7 * widest))),
        labelLimit=frame.width,
        symbolType="square",
    )
    colour = alt.Color("cause:N", scale=alt.Scale(domain=labels, range=_choose_colours(labels)), legend=legend)
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("Point", "Part", "Share", "Interval", "Time")]
    description = alt.Description("text:N")
    bars = chart_rows(rows).mark_bar().encode(x, y, colour, x2=alt.X2("to:Q"), description=description, tooltip=tooltip)
    layers = [bars, *_make_name_layers(names, headings, y, frame)]
    left_out = len(points) - len(shown)
    remark = [f"{left_out} more points: trainscale explain."] if left_out else []
    heading = ["A step of each point, split by cause. More work is better.", *remark]
    return apply_theme(layers, "Where the time went", heading, Frame(frame.width, step * len(shown)))


def _make_name_layers(
    names: Sequence[str], headings: Sequence[Sequence[str]], y: alt.Y, frame: Frame
) -> list[alt.Chart]:
    """Return the lines of the names above the bars: a layer for all last lines, one for those before them."""
    layers = []
    for number in range(max(map(len, headings))):
        lines = [
            {"point": name, "line": heading[-1 - number]}
            for name, heading in zip(names, headings, strict=True)
            if number < len(heading)
        ]
        text = chart_rows(lines).mark_text(
            align="left", baseline="bottom", dy=-12 - number * _LINE, fontSize=12, limit=frame.width, aria=False
        )
        layers.append(text.encode(y, x=alt.value(0), text=alt.Text("line:N"), color=alt.ColorValue(INK)))
    return layers


def make_time_grid(points: Sequence[PointExplanation]) -> Grid:
    """Return the table of the same points."""
    rows = tuple(
        (
            point.title,
            format_integer(point.devices),
            part.part,
            f"{percentage}{THIN}%",
            format_limits(part),
            format_significant(part.seconds * 1000, 3),
        )
        for point in choose_bars(points)
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True)
    )
    header = ("series", "devices", "part", "share", "95 % interval", "ms of a step")
    return Grid("Parts of a step", header, rows, left=(0, 2))


def list_time_sentences(points: Sequence[PointExplanation]) -> list[tuple[str, list[str]]]:
    """Return the verdict of every point that is drawn, with its notes."""
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    return [
        (f"{describe_verdict(point, with_titles)}.", [f"{note[:1].upper()}{note[1:]}." for note in list_notes(point)])
        for point in shown
    ]


def _name_point(point: PointExplanation, with_title: bool) -> str:
    hosts = f" on {wording.format_host_count(point.hosts)}" if point.hosts > 1 else ""
    where = f"{wording.format_device_count(point.devices)}{hosts}, {format_milliseconds(point.step_seconds)} a step"
    return f"{where} · {point.title}" if with_title else where  # the end may be cut off


def _make_rows(name: str, point: PointExplanation) -> list[Row]:
    rows: list[Row] = []
    begin = 0.0
    for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
        end = begin + part.share * 100
        rows.append({"point": name, "from": begin, "to": end, **_describe_part(name, part, percentage)})
        begin = end
    return rows


def _describe_part(name: str, part: ExplainedPart, percentage: int) -> Row:
    share, interval, time = f"{percentage}{THIN}%", format_limits(part), format_milliseconds(part.seconds)
    return {
        "cause": part.part,
        "text": f"{part.part}: {share} {interval}, {time} · {name}",
        "Point": name,
        "Part": part.part,
        "Share": share,
        "Interval": interval or "none, too few repeats",
        "Time": f"{time} of a step",
    }


def _choose_colours(labels: Sequence[str]) -> list[str]:
    together = [name for name in labels if name not in _COLOURS]
    return [_COLOURS.get(name) or _TOGETHER[together.index(name) % len(_TOGETHER)] for name in labels]
