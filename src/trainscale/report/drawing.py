"""How the charts look; and how a spec becomes an SVG."""

import atexit
import base64
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import altair as alt
from altair.utils.schemapi import debug_mode

from ..analyse.series import HostBoundary, Series, find_common_boundary
from ..errors import TrainscaleError
from ..folders import find_cache_folder
from ..launch.connection import describe_exit
from ..record.files import write_atomically
from . import numbers, wording

VegaSpec = dict[str, Any]  # a chart of Vega-Lite, or a part of one
Row = dict[str, Any]  # a row of the data of a chart: a value for each column

_THEME = Path(__file__).parent / "templates" / "theme.json"
INK = "currentColor"  # the text colour of the page, so that the same chart suits light and dark
PAPER_INK = "#1f2430"

# Okabe and Ito's palette for colour-blind readers, and two of Paul Tol's muted scheme.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999933", "#AA4499")
# Colour alone is not enough for everyone. Seven shapes, eight colours: pairs repeat after 56 series.
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
IDEAL = "#8A8F98"  # reads on white and on black
_CROSS = "M-1,-1L1,1M-1,1L1,-1"  # a point that failed

# Kinds of y axis: logarithmic with ticks at powers of 2 or round numbers; linear from zero.
OCTAVES, DECADES, PERCENT = "octaves", "decades", "percent"

# Altair's checks take longer than the drawing. The tests check finished charts instead.
without_schema_checks = debug_mode(False)


@dataclass(frozen=True)
class Frame:
    """The size of the plotting area in pixels."""

    width: int = 720
    height: int = 420


@dataclass(frozen=True)
class Plot:
    """What a chart of points shows. ``ideal`` may be that of a ``series``."""

    title: str
    notes: list[str]
    y_title: str
    y_kind: str
    shown: list[Series]
    rows: list[Row]
    ideal: Sequence[Row] = ()


def choose_styles(all_series: Sequence[Series]) -> list[tuple[str, str]]:
    """Return the colour and shape of each series, the same in every chart of a run.

    If there are more series than colours, networks differ in shape and all else in colour.
    """
    networks = [series.config.model for series in all_series]
    ways = [series.title.partition(" · ")[2] for series in all_series]
    fits = len(set(ways)) <= len(COLOURS) and len(set(networks)) <= len(SHAPES)
    if len(all_series) > len(COLOURS) and fits:
        colours = dict(zip(dict.fromkeys(ways), COLOURS, strict=False))
        shapes = dict(zip(dict.fromkeys(networks), SHAPES, strict=False))
        pairs = [(colours[way], shapes[network]) for way, network in zip(ways, networks, strict=True)]
        if len(set(pairs)) == len(all_series):
            return pairs
    count = range(len(all_series))
    return [(COLOURS[number % len(COLOURS)], SHAPES[number % len(SHAPES)]) for number in count]


@without_schema_checks
def draw(all_series: Sequence[Series], plot: Plot, frame: Frame) -> VegaSpec:
    """``all_series`` are those of the run, so that colours agree."""
    if not plot.rows:
        sentence = chart_rows([{"text": "No point gave a result to draw."}])
        layer = sentence.mark_text(fontSize=14, color=INK, opacity=0.7).encode(text="text:N")
        return apply_theme([layer], plot.title, plot.notes[1:], Frame(frame.width, 120))
    failed: list[Row] = []
    for series in plot.shown:
        for point in (point for point in series.points if not point.ok):
            reason = wording.describe_status_and_reason(point)
            devices = wording.format_devices_and_hosts(point)
            text = f"{devices}: {reason} · {series.title}"
            row = {"series": series.title, "devices": point.devices, "hosts": point.hosts}
            failed.append({**row, "text": text, "No result": reason})
    # A log axis cannot show an interval that reaches below 0: the bar is cut off.
    with_bars = [
        {**row, "floor": max(row["low"], row["value"] / 4), "ceiling": row["high"]}
        for row in plot.rows
        if row["low"] is not None and row["high"] is not None
    ]
    x, y = _make_x_axis(plot, failed), _make_y_axis(plot, with_bars)
    floor = y.copy()
    floor.shorthand = "floor:Q"  # the same axis for another field
    shown_titles = [series.title for series in plot.shown]
    options = {"values": shown_titles, "labelLimit": frame.width - 30, "symbolOpacity": 1}
    legend = make_legend(shown_titles, frame, **options)
    titles = [series.title for series in all_series]
    colours, shapes = zip(*choose_styles(all_series), strict=True)
    colour_scale = alt.Scale(domain=titles, range=list(colours))
    colour = alt.Color("series:N", scale=colour_scale, legend=legend)
    shape_scale = alt.Scale(domain=titles, range=list(shapes))
    shape = alt.Shape("series:N", scale=shape_scale, legend=legend)
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
        bars.encode(x, floor, y2="ceiling:Q", **style),
        lines.encode(x, y, **style),
        points.encode(x, y, shape, **style, **_make_descriptions(plot.rows)).add_params(selected),
    ]
    notes = [*plot.notes, *(["Bars: 95\u202f% interval."] if with_bars else [])]
    apart = [series.title for series in plot.shown if all(point.hosts > 1 for point in series.points)]
    if boundary and apart:
        notes.append(f"On several hosts at every point: {wording.name_few(apart)}.")
    if failed:
        cross = chart_rows(failed).mark_point(shape=_CROSS, size=60, strokeWidth=2, filled=False)
        bottom = alt.value(frame.height - 9)
        layers.append(cross.encode(x, y=bottom, **style, **_make_descriptions(failed)))
        notes.append("× at the bottom: a point that gave no result.")
    return apply_theme(layers, plot.title, notes, frame, label_height=10 if boundary else 0)


def _make_x_axis(plot: Plot, failed: list[Row]) -> alt.X:
    measured = sorted({row["devices"] for row in (*plot.rows, *failed)})
    kind = wording.describe_device_kind(plot.shown)
    domain = _pad_domain([*measured, *(row["devices"] for row in plot.ideal)], 0.04)
    return alt.X(
        "devices:Q",
        title="Devices" if kind == "devices" else f"Devices ({kind})",
        scale=alt.Scale(type="log", base=2, domain=domain, nice=False),
        axis=alt.Axis(values=measured, format="d", labelOverlap="greedy"),
    )


def _make_y_axis(plot: Plot, with_bars: list[Row]) -> alt.Y:
    values = [row["value"] for row in (*plot.rows, *plot.ideal)]
    values += [row[end] for row in with_bars for end in ("floor", "ceiling")]
    if plot.y_kind == PERCENT:
        linear = alt.Scale(domain=[0, max(values) * 1.08], nice=False)
        return alt.Y("value:Q", title=plot.y_title, scale=linear)
    low, high = _pad_domain(values, 0.05)
    if plot.y_kind == OCTAVES:
        base = 2
        finest = 0 if high / low < 4 else 1 if high / low < 8 else 2
        all_steps = [(1, 1.25, 1.5, 1.75), (1, 1.5), (1,)][finest:]
    else:
        base = 10
        all_steps = [(1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)]
    exponents = range(math.floor(math.log(low, base)), math.ceil(math.log(high, base)) + 1)
    ticks: list[float] = []
    for steps in all_steps:  # the finest that can be read
        ticks = [step * float(base) ** exponent for exponent in exponents for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 12 or base == 2:
            break
    return alt.Y(
        "value:Q",
        title=plot.y_title,
        scale=alt.Scale(type="log", base=base, domain=[low, high], nice=False),
        axis=alt.Axis(values=ticks, format=",~r", labelOverlap="greedy"),
    )


def _pad_domain(values: Iterable[float], share: float) -> list[float]:
    """Return a longer log domain, of at least an octave."""
    low, high = min(values), max(values)
    length = math.log2(high / low)
    pad = 2 ** max(share * length, (1 - length) / 2)
    return [low / pad, high * pad]


def _make_boundary_layers(boundary: HostBoundary, x: alt.X) -> list[alt.Chart]:
    """Return a line where the ladder leaves its first host."""
    middle = math.sqrt(boundary.last_on_one_host * boundary.first_on_several)  # on a logarithmic axis
    grey = {"color": alt.value(IDEAL)}
    line = chart_rows([{"devices": middle}]).mark_rule(strokeWidth=1, aria=False)
    layers = [line.encode(x, **grey)]
    beyond = wording.format_host_count(boundary.most_hosts)
    if boundary.fewest_hosts < boundary.most_hosts:
        beyond = f"{numbers.format_integer(boundary.fewest_hosts)}–{beyond}"
    places: dict[str, VegaSpec] = {
        "1 host": {"align": "right", "dx": -6},
        beyond: {"align": "left", "dx": 6},
    }
    for text, place in places.items():
        label = chart_rows([{"devices": middle, "name": text}])
        mark = label.mark_text(baseline="bottom", dy=-3, fontSize=11, aria=False, **place)
        layers.append(mark.encode(x, y=alt.value(0), text="name:N", **grey))
    return layers


def _make_ideal_layers(plot: Plot, x: alt.X, y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Return a grey, named line, or faint ones for each series."""
    if len({row["devices"] for row in plot.ideal}) < 2:
        return []
    line = chart_rows(plot.ideal).mark_line(strokeDash=[6, 4], strokeWidth=1.4, aria=False)
    if "series" in plot.ideal[0]:
        return [line.encode(x, y, colour, opacity=alt.value(0.45))]
    end = chart_rows([{**plot.ideal[-1], "name": "Ideal"}])
    name = end.mark_text(align="right", dx=-16, dy=-8, fontSize=12, aria=False)
    grey = {"color": alt.value(IDEAL)}
    return [line.encode(x, y, **grey), name.encode(x, y, text="name:N", **grey)]


def _make_descriptions(rows: list[Row]) -> VegaSpec:
    """Return what marks say in a picture and on the page."""
    tooltip = [alt.Tooltip("series:N", title="Series")]
    tooltip.append(alt.Tooltip("devices:Q", title="Devices", format=",d"))
    if any(row["hosts"] > 1 for row in rows):
        tooltip.append(alt.Tooltip("hosts:Q", title="Hosts", format=",d"))
    tooltip += [alt.Tooltip(f"{name}:N") for name in rows[0] if name[0].isupper()]
    return {"description": "text:N", "tooltip": tooltip}


def make_legend(names: Sequence[str], frame: Frame, **options: Any) -> alt.Legend:
    """Return a legend with as many columns as there is room for."""
    entry_width = 36 + 7 * max(map(len, names))  # pixels that the longest name takes at most
    columns = max(1, min(len(names), frame.width // entry_width))
    defaults = {"title": None, "orient": "bottom", "direction": "horizontal", "columns": columns}
    return alt.Legend(**{**defaults, "labelLimit": frame.width, **options})


def apply_theme(
    layers: Sequence[alt.Chart], title: str, notes: Sequence[str], frame: Frame, label_height: int = 0
) -> VegaSpec:
    """Return a chart of layers; ``label_height`` is above the plot."""
    lines = textwrap.wrap(" ".join(notes), frame.width // 6)  # an average letter takes six pixels
    offset = 14 + label_height
    heading = alt.TitleParams(title, subtitle=lines, anchor="start", frame="group", offset=offset)
    # One call for all: each method of a chart copies the whole chart, which takes long.
    chart = alt.layer(*layers, width=frame.width, height=frame.height, title=heading)
    spec: VegaSpec = chart.to_dict(validate=False)
    datasets = {name: list(rows) for name, rows in spec["datasets"].items()}
    return {**spec, "datasets": datasets, "config": json.loads(_THEME.read_text(encoding="utf-8"))}


def chart_rows(rows: Sequence[Row]) -> alt.Chart:
    # Altair copies a chart many times, with every list and dict in it, but not what is in a tuple.
    return alt.Chart(alt.InlineData(values=tuple(rows)))


def to_svg(spec: VegaSpec, *, standalone: bool) -> str:
    """Without ``standalone`` a picture takes the colours of its page."""
    svg: str = call_vl_convert("vegalite_to_svg", spec)
    # Browsers do not show the aria-label that vl-convert writes. The text is already escaped.
    svg = re.sub(
        r'(<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="point"[^>]*)/>',
        r"\1><title>\2</title></path>",
        svg,
    )
    if standalone:
        background = '<rect width="100%" height="100%" fill="white"/>'
        svg = re.sub(r"^<svg ([^>]*>)", rf'<svg color="{PAPER_INK}" \1{background}', svg)
    return svg + "\n"


# ---- the process that draws all pictures of this process (draw_charts.py)
#
# V8 ends its process if it gets too few addresses (``ulimit -v``). In a process of its own it
# cannot end the run.


class ChartsUnavailable(TrainscaleError):
    """Charts cannot be drawn; the message says why."""


@cache
def _start_process() -> tuple[subprocess.Popen[str], IO[str]]:
    # Its standard error is open as long as the process runs.
    errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    # A session of its own, so that charts can be drawn after Ctrl-C.
    process = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).resolve().with_name("draw_charts.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
    return process, errors


os.register_at_fork(after_in_child=_start_process.cache_clear)  # a fork starts its own


def begin_drawing() -> None:
    if _start_process()[0].poll() is not None:
        end_drawing()
        _start_process()


@atexit.register
def end_drawing() -> None:
    if _start_process.cache_info().currsize:
        process, errors = _start_process()
        process.kill()
        process.communicate()  # closes its pipes
        errors.close()
        _start_process.cache_clear()


def call_vl_convert(name: str, *arguments: Any) -> Any:
    """Call vl_convert. Raises ChartsUnavailable if the process has ended or ends now."""
    process, errors = _start_process()
    assert process.stdin is not None
    assert process.stdout is not None
    line = ""
    try:
        process.stdin.write(f"{json.dumps([name, *arguments])}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        pass
    except BaseException:  # such as Ctrl-C: the next answer would be the one to this request
        process.kill()
        raise
    if line:
        answer = json.loads(line)
        return base64.b64decode(answer) if name in ("svg_to_png", "svg_to_pdf") else answer
    exit_reason = describe_exit(process.wait())
    errors.seek(0)
    lines = [line for text in errors if (line := text.strip("# \n"))]
    causes = [line for line in lines if line.startswith(("Fatal ", "TypeError"))] or lines[-1:]
    message = ": ".join([f"the process that draws them {exit_reason}", *causes[:1]])
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        size = f"{limit / 2**30:.0f} GiB"
        message += f"; its addresses are limited to {size} (ulimit -v), and it needs more"
    raise ChartsUnavailable(message)


def load_vega_bundle() -> str:
    """Return the JavaScript of Vega; to make it takes more than a second."""
    path = find_cache_folder() / "vega" / f"{metadata.version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    bundle: str = call_vl_convert("javascript_bundle", "window.vegaEmbed = vegaEmbed;")
    bundle = bundle.replace("</script", "<\\/script")
    try:
        write_atomically(path, bundle)
    except OSError:
        pass  # such as a home that cannot be written: the next report makes it again
    return bundle
