"""How the charts look: axes, layers, legend and theme in Altair; and how a spec becomes an SVG.

The axis of devices is logarithmic, with a tick at every count that was measured.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from ..analyse.series import HostBoundary, Point, Series, find_common_boundary
from . import palette, wording
from .drawing_process import render

VegaSpec = dict[str, Any]  # a chart of Vega-Lite, or a part of one
Row = dict[str, Any]  # a row of the data of a chart: a value for each column

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
INK = "currentColor"  # the text colour of the page, so that the same chart suits light and dark
PAPER_INK = "#1f2430"

# Kinds of y axis: logarithmic with ticks at powers of two, or at round decimal numbers; linear from zero.
OCTAVES, DECADES, PERCENT = "octaves", "decades", "percent"

_LABEL_HEIGHT = 10  # pixels above the plot for the labels of a host boundary

# Decorates functions that draw. Altair checks each part of a chart against Vega-Lite's schema while it is built, which
# takes longer than the drawing. The tests check the finished specs instead.
without_schema_checks = debug_mode(False)


@dataclass(frozen=True)
class Frame:
    """The size of the plotting area in pixels."""

    width: int = 720
    height: int = 420


@dataclass(frozen=True)
class Plot:
    """What one chart shows. ``ideal`` rows with a ``series`` belong to that series, others to all."""

    title: str
    notes: list[str]
    y_title: str
    y_kind: str
    shown: list[Series]
    rows: list[Row]
    ideal: list[Row]


@without_schema_checks
def draw(all_series: Sequence[Series], plot: Plot, frame: Frame) -> VegaSpec:
    """Return the Vega-Lite spec of a chart. ``all_series`` are those of the run, so that colours and shapes agree."""
    if not plot.rows:
        return _draw_empty(plot, frame)
    failed = [_make_failed_row(series, point) for series in plot.shown for point in series.points if not point.ok]
    with_bars = _add_bar_ends(plot.rows)
    x, y = _make_x_axis(plot, failed), _make_y_axis(plot, with_bars)
    legend = _make_legend(plot.shown, frame)
    colours, shapes = zip(*palette.choose_styles(all_series), strict=True)
    titles = [series.title for series in all_series]
    colour = alt.Color("series:N", scale=alt.Scale(domain=titles, range=list(colours)), legend=legend)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=titles, range=list(shapes)), legend=legend)
    selected = alt.selection_point(name="pick", fields=["series"], bind="legend")
    fade = alt.OpacityValue(0.12, condition=[{"param": "pick", "value": 1.0}])
    style = {"color": colour, "opacity": fade}

    bars = chart_rows(with_bars).mark_rule(strokeWidth=1.6, aria=False)
    lines = chart_rows(plot.rows).mark_line(strokeWidth=2, aria=False)
    points = chart_rows(plot.rows).mark_point(filled=True, size=75)
    boundary = find_common_boundary(plot.shown)
    layers = [
        *(_make_boundary_layers(boundary, x) if boundary else ()),
        *_make_ideal_layers(plot, x, y, colour),
        bars.encode(x, _copy_axis(y, "floor"), y2=alt.Y2("ceiling:Q"), **style),
        lines.encode(x, y, **style),
        points.encode(x, y, shape, **style, **_make_descriptions(plot.rows)).add_params(selected),
    ]
    notes = [*plot.notes, *(["Bars: 95\u202f% interval."] if with_bars else [])]
    if boundary:
        notes += _note_series_on_several_hosts(plot.shown)
    if failed:
        cross = chart_rows(failed).mark_point(shape=palette.CROSS, size=60, strokeWidth=2, filled=False)
        layers.append(cross.encode(x, y=alt.value(frame.height - 9), **style, **_make_descriptions(failed)))
        notes.append("× at the bottom: a point that gave no result.")
    return apply_theme(layers, plot.title, notes, frame, label_height=_LABEL_HEIGHT if boundary else 0)


def to_svg(spec: VegaSpec, *, standalone: bool) -> str:
    """Return a static picture in which each point has its description as a tooltip.

    ``standalone`` sets background and text colour; without it, the picture takes those of the page around it.
    """
    svg = render(spec=spec).decode()
    # vl-convert writes a description as aria-label, which browsers do not show. The text is already escaped.
    svg = re.sub(
        r'(<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="point"[^>]*)/>',
        r"\1><title>\2</title></path>",
        svg,
    )
    if standalone:
        background = '<rect width="100%" height="100%" fill="white"/>'
        svg = re.sub(r"^<svg ([^>]*>)", rf'<svg color="{PAPER_INK}" \1{background}', svg)
    return svg + "\n"


def use_paper_colours(spec: VegaSpec) -> VegaSpec:
    """Return the chart with dark text on white, for where the colours of the page around it are not known."""
    text = json.dumps(spec).replace(json.dumps(INK), json.dumps(PAPER_INK))
    chart: VegaSpec = json.loads(text)
    chart["config"]["background"] = "white"
    return chart


def _make_x_axis(plot: Plot, failed: list[Row]) -> alt.X:
    counts = sorted({row["devices"] for row in (*plot.rows, *failed, *plot.ideal)})
    measured = sorted({row["devices"] for row in (*plot.rows, *failed)})
    kind = wording.describe_device_kind(plot.shown)
    return alt.X(
        "devices:Q",
        title="Devices" if kind == "devices" else f"Devices ({kind})",
        scale=alt.Scale(type="log", base=2, domain=_pad_domain(counts, 0.04), nice=False),
        axis=alt.Axis(values=measured, format="d", labelOverlap="greedy"),
    )


def _make_y_axis(plot: Plot, with_bars: list[Row]) -> alt.Y:
    values = [row["value"] for row in (*plot.rows, *plot.ideal)]
    values += [row[end] for row in with_bars for end in ("floor", "ceiling")]
    if plot.y_kind == PERCENT:
        scale = alt.Scale(domain=[0, max(values) * 1.08], nice=False)
        return alt.Y("value:Q", title=plot.y_title, scale=scale)
    domain = _pad_domain(values, 0.05)
    ticks = _list_octave_ticks(*domain) if plot.y_kind == OCTAVES else _list_decade_ticks(*domain)
    return alt.Y(
        "value:Q",
        title=plot.y_title,
        scale=alt.Scale(type="log", base=2 if plot.y_kind == OCTAVES else 10, domain=domain, nice=False),
        axis=alt.Axis(values=ticks, format=",~r", labelOverlap="greedy"),
    )


def _copy_axis(y: alt.Y, field: str) -> alt.Y:
    """Return the same axis for another field."""
    axis = y.copy()
    axis.shorthand = f"{field}:Q"
    return axis


def _make_ideal_layers(plot: Plot, x: alt.X, y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Return a grey, dashed, named line; where each series has its own ideal, faint lines in the series' colours."""
    if len({row["devices"] for row in plot.ideal}) < 2:
        return []
    line = chart_rows(plot.ideal).mark_line(strokeDash=[6, 4], strokeWidth=1.4, aria=False)
    if "series" in plot.ideal[0]:
        return [line.encode(x, y, colour, opacity=alt.OpacityValue(0.45))]
    end = chart_rows([{**plot.ideal[-1], "name": "Ideal"}])
    name = end.mark_text(align="right", dx=-16, dy=-8, fontSize=12, aria=False)
    grey = alt.ColorValue(palette.IDEAL)
    return [line.encode(x, y, color=grey), name.encode(x, y, text=alt.Text("name:N"), color=grey)]


def _make_boundary_layers(boundary: HostBoundary, x: alt.X) -> list[alt.Chart]:
    """Return a thin line where the ladder leaves its first host. Its labels are above the plot, clear of all marks."""
    middle = math.sqrt(boundary.last_on_one_host * boundary.first_on_several)  # on a logarithmic axis
    line = chart_rows([{"devices": middle}]).mark_rule(strokeWidth=1, aria=False)
    grey = {"color": alt.ColorValue(palette.IDEAL)}
    layers = [line.encode(x, **grey)]
    left, right = (
        chart_rows([{"devices": middle, "name": text}]) for text in ("1 host", wording.format_hosts_beyond(boundary))
    )
    for label in (
        left.mark_text(align="right", baseline="bottom", dx=-6, dy=-3, fontSize=11, aria=False),
        right.mark_text(align="left", baseline="bottom", dx=6, dy=-3, fontSize=11, aria=False),
    ):
        layers.append(label.encode(x, y=alt.value(0), text=alt.Text("name:N"), **grey))
    return layers


def _note_series_on_several_hosts(shown: Sequence[Series]) -> list[str]:
    """Return a note on the series that the boundary does not concern."""
    titles = [series.title for series in shown if all(point.hosts > 1 for point in series.points)]
    return [f"On several hosts at every point: {wording.name_few(titles)}."] if titles else []


def _add_bar_ends(rows: list[Row]) -> list[Row]:
    """Return the rows that have an interval, with the ends of its bar.

    The interval of a few scattered repeats may reach below 0, which a log axis cannot show: its bar stops at a quarter.
    """
    return [
        {**row, "floor": max(row["low"], row["value"] / 4), "ceiling": row["high"]}
        for row in rows
        if row["low"] is not None and row["high"] is not None
    ]


def _make_failed_row(series: Series, point: Point) -> Row:
    reason = wording.describe_status_and_reason(point)
    text = f"{wording.format_devices_and_hosts(point)}: {reason} · {series.title}"
    return {"series": series.title, "devices": point.devices, "hosts": point.hosts, "text": text, "No result": reason}


def _make_descriptions(rows: list[Row]) -> VegaSpec:
    """Return the descriptions of marks: a line in a static picture, a small table on the page."""
    hidden = {"series", "devices", "hosts", "value", "low", "high", "text"}
    lines = [alt.Tooltip(f"{name}:N") for name in rows[0] if name not in hidden]
    tooltip = [alt.Tooltip("series:N", title="Series"), alt.Tooltip("devices:Q", title="Devices", format=",d")]
    if any(row["hosts"] > 1 for row in rows):
        tooltip.append(alt.Tooltip("hosts:Q", title="Hosts", format=",d"))
    return {"description": alt.Description("text:N"), "tooltip": tooltip + lines}


def _make_legend(shown: Sequence[Series], frame: Frame) -> alt.Legend:
    titles = [series.title for series in shown]
    entry_width = 36 + 7 * max(map(len, titles))  # pixels that the longest title takes at most
    return alt.Legend(
        title=None,
        orient="bottom",
        direction="horizontal",
        columns=max(1, min(len(titles), frame.width // entry_width)),
        values=titles,
        labelLimit=frame.width - 30,  # beside its symbol
        symbolOpacity=1,
    )


def _draw_empty(plot: Plot, frame: Frame) -> VegaSpec:
    """Return a chart that says that there is nothing to draw."""
    text = chart_rows([{"text": "No point gave a result to draw."}]).mark_text(fontSize=14, color=INK, opacity=0.7)
    return apply_theme([text.encode(text=alt.Text("text:N"))], plot.title, plot.notes[1:], Frame(frame.width, 120))


def apply_theme(
    layers: Sequence[alt.Chart], title: str, notes: Sequence[str], frame: Frame, label_height: int = 0
) -> VegaSpec:
    """Return a chart of these layers in the common theme."""
    lines = textwrap.wrap(" ".join(notes), frame.width // 6)  # an average letter takes six pixels
    heading = alt.TitleParams(title, subtitle=lines, anchor="start", frame="group", offset=14 + label_height)
    axis: VegaSpec = {
        **{f"{part}Color": INK for part in ("label", "title", "domain", "tick", "grid")},
        **{"domainOpacity": 0.45, "tickOpacity": 0.45, "gridOpacity": 0.11},
        **{"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        **{"titlePadding": 10, "labelPadding": 5},
    }
    legend: VegaSpec = {
        "labelColor": INK,
        "labelFontSize": 12,
        "symbolSize": 90,
        "rowPadding": 5,
        "columnPadding": 22,
    }
    fonts: VegaSpec = {"fontSize": 16, "fontWeight": 600, "subtitleFontSize": 12, "subtitlePadding": 6}
    theme = alt.Config(
        background="transparent",
        font=FONT,
        padding=16,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(**axis),
        legend=alt.LegendConfig(**legend, offset=14),
        title=alt.TitleConfig(color=INK, subtitleColor=INK, **fonts),
    )
    # One call for all: each method of a chart copies the whole chart, which takes most of the time of a report.
    chart = alt.layer(*layers, width=frame.width, height=frame.height, title=heading, config=theme)
    spec: VegaSpec = chart.to_dict(validate=False)
    return {**spec, "datasets": {name: list(rows) for name, rows in spec["datasets"].items()}}


def chart_rows(rows: Sequence[Row]) -> alt.Chart:
    # Altair copies a chart many times, with every list and dict in it, but not what is in a tuple.
    return alt.Chart(alt.InlineData(values=tuple(rows)))


def _pad_domain(values: Iterable[float], share: float) -> list[float]:
    """Return a log domain around the values, longer by ``share`` at each end, and at least an octave long."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    length = math.log2(high / low)
    pad = 2 ** max(share * length, (1 - length) / 2)
    return [low / pad, high * pad]


def _list_octave_ticks(low: float, high: float) -> list[float]:
    """Return the powers of two in a domain, with steps between them where the domain is short."""
    octaves = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    steps = (1.0, 1.25, 1.5, 1.75) if high / low < 4 else (1.0, 1.5) if high / low < 8 else (1.0,)
    return [tick for k in octaves for step in steps if low <= (tick := step * 2.0**k) <= high]


def _list_decade_ticks(low: float, high: float) -> list[float]:
    """Return round numbers in a domain, as many as can be read: fine steps if it is short, decades if long."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [tick for k in decades for step in steps if low <= (tick := step * 10.0**k) <= high]
        if len(ticks) <= 12:
            break
    return ticks
