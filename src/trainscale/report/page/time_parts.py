"""Where the time of a step went: a bar for each point, split into the parts of its explanation; also as a table."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ...analyse.explanation.causes import CAUSES
from ...analyse.explanation.explain import PointExplanation
from ...analyse.explanation.parts import Part
from .. import wording
from ..drawing import INK, Frame, Row, Spec, rows_of, themed, without_schema_checks
from ..explanation_sentences import label, milliseconds, notes, verdict_sentence
from ..explanation_text import limits, whole_percents
from ..grid import Grid
from ..numbers import THIN, integer, significant

MOST_BARS = 24
_BAR_STEP = 46  # pixels from bar to bar; the name of a bar stands above it
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
def time_chart(points: Sequence[PointExplanation], frame: Frame) -> Spec:
    """Return stacked bars of the parts of a step, in per cent."""
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    names = [_name(point, with_titles) for point in shown]
    rows = [row for name, point in zip(names, shown, strict=True) for row in _rows(name, point)]
    labels = list(dict.fromkeys(row["cause"] for row in rows))
    y = alt.Y("point:N", sort=names, axis=None, scale=alt.Scale(paddingInner=0.6, paddingOuter=0.45, domain=names))
    x = alt.X("from:Q", title="Share of the step, %", scale=alt.Scale(domain=[0, 100], nice=False))
    widest = max(map(len, labels))
    legend = alt.Legend(
        title=None,
        orient="bottom",
        direction="horizontal",
        columns=max(1, min(len(labels), frame.width // (36 + 7 * widest))),
        labelLimit=frame.width,
        symbolType="square",
    )
    colour = alt.Color("cause:N", scale=alt.Scale(domain=labels, range=_colours(labels)), legend=legend)
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("Point", "Part", "Share", "Interval", "Time")]
    bars = rows_of(rows).mark_bar().encode(x, y, colour, x2="to:Q", description="text:N", tooltip=tooltip)
    text = rows_of([{"point": name} for name in names]).mark_text(
        align="left", baseline="bottom", dy=-12, fontSize=12, limit=frame.width, aria=False
    )
    layers = [bars, text.encode(y, x=alt.value(0), text="point:N", color=alt.ColorValue(INK))]
    left_out = len(points) - len(shown)
    remark = [f"{left_out} more points: trainscale explain."] if left_out else []
    heading = ["A step of each point, split by cause. More work is better.", *remark]
    return themed(layers, "Where the time went", heading, Frame(frame.width, _BAR_STEP * len(shown)))


def time_grid(points: Sequence[PointExplanation]) -> Grid:
    """Return the table of the same points."""
    rows = tuple(
        (
            point.title,
            integer(point.devices),
            label(part),
            f"{percentage}{THIN}%",
            limits(part),
            significant(part.seconds * 1000, 3),
        )
        for point in choose_bars(points)
        for part, percentage in zip(point.parts, whole_percents(point.parts), strict=True)
    )
    header = ("series", "devices", "part", "share", "95 % interval", "ms of a step")
    return Grid("Parts of a step", header, rows, left=(0, 2))


def time_sentences(points: Sequence[PointExplanation]) -> list[tuple[str, list[str]]]:
    """Return the verdict of every point that is drawn, with its notes."""
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    subjects = [f"{point.title}: " if with_titles else "" for point in shown]
    return [
        (f"{subject}{verdict_sentence(point)}.", [f"{note}." for note in notes(point)])
        for subject, point in zip(subjects, shown, strict=True)
    ]


def _name(point: PointExplanation, with_title: bool) -> str:
    hosts = f" on {wording.host_count(point.hosts)}" if point.hosts > 1 else ""
    where = f"{wording.device_count(point.devices)}{hosts}, {milliseconds(point.step_seconds)} a step"
    return f"{where} · {point.title}" if with_title else where  # the end may be cut off


def _rows(name: str, point: PointExplanation) -> list[Row]:
    rows: list[Row] = []
    begin = 0.0
    for part, percentage in zip(point.parts, whole_percents(point.parts), strict=True):
        end = begin + part.share * 100
        rows.append({"point": name, "from": begin, "to": end, **_texts(name, part, percentage)})
        begin = end
    return rows


def _texts(name: str, part: Part, percentage: int) -> Row:
    share, interval, time = f"{percentage}{THIN}%", limits(part), milliseconds(part.seconds)
    return {
        "cause": label(part),
        "text": f"{label(part)}: {share} {interval}, {time} · {name}",
        "Point": name,
        "Part": label(part),
        "Share": share,
        "Interval": interval or "none, too few repeats",
        "Time": f"{time} of a step",
    }


def _colours(labels: Sequence[str]) -> list[str]:
    together = [name for name in labels if name not in _COLOURS]
    return [_COLOURS.get(name) or _TOGETHER[together.index(name) % len(_TOGETHER)] for name in labels]
