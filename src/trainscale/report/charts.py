"""What the charts of series show, in files, on the page and in a notebook."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import altair as alt

from ..analyse.series import Interval, Point, Series, find_common_unit
from ..errors import InputError, explain_unknown
from . import numbers, wording
from .columns import find_memory_peak
from .drawing import (
    COLOURS,
    DECADES,
    IDEAL,
    INK,
    OCTAVES,
    PAPER_INK,
    PERCENT,
    Frame,
    Plot,
    Row,
    VegaSpec,
    apply_theme,
    chart_rows,
    draw,
    make_legend,
    without_schema_checks,
)
from .options import ABSOLUTE, PER_DEVICE, Overlay

FULL = Frame()  # of a chart in a file
# Sections of the page with charts.
LEADING, FURTHER, TIME, STRIPS = "leading", "further", "time", "strips"

_TRAIN, _VALID = "training", "validation"
# A unit of time, its seconds, and the shortest training that is shown in it.
_UNITS = (("hours", 3600.0, 7200.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))


@dataclass(frozen=True)
class NamedChart:
    """A chart of the page and of files. A wide one has a narrow one, too."""

    name: str
    section: str  # empty: only in files
    draw: Callable[[Frame], VegaSpec]
    file: str
    is_wide: bool = False
    is_always_file: bool = False  # as SVG, whatever formats are asked for


def list_charts(all_series: Sequence[Series], overlay: Overlay) -> list[NamedChart]:
    """Return the charts; with one device count none of speed-up."""
    learns = any(series.learns for series in all_series)
    scales = bool(overlay.series) or any(len(series.points) > 1 for series in all_series)
    with_published = [*all_series, *overlay.series]
    per_device = bool(overlay.series) and overlay.normalise == PER_DEVICE
    with_curves = per_device or overlay.normalise == ABSOLUTE
    shown = with_published if with_curves else all_series
    speed = partial(draw_throughput, shown, per_device=per_device)
    charts = []
    if learns:
        accuracy = partial(draw_accuracy, all_series)
        over_time = partial(draw_accuracy, all_series, over_time=True)
        charts.append(NamedChart("accuracy", LEADING, accuracy, "accuracy", is_always_file=True))
        charts.append(NamedChart("time", LEADING, over_time, "accuracy_over_time"))
    speedup = partial(draw_speedup, with_published)
    efficiency = partial(draw_efficiency, with_published)
    leading, further = (LEADING, FURTHER) if scales else ("", "")
    file = f"{find_common_unit(all_series)}_per_sec"
    charts += [
        NamedChart("speedup", leading, speedup, "comparison_graph", is_wide=True, is_always_file=True),
        NamedChart("images", further if learns else FURTHER, speed, file, is_always_file=True),
        NamedChart("efficiency", further, efficiency, "efficiency"),
    ]
    several = [series for series in all_series if len(series.points) > 1]
    if any(find_memory_peak(point) for series in several for point in series.good):
        charts.append(NamedChart("memory", FURTHER, partial(draw_memory, all_series), "memory"))
    return charts


def make_chart(all_series: Sequence[Series], quantity: str) -> alt.LayerChart:
    """Return a chart for a notebook."""
    functions = {
        "speedup": draw_speedup,
        "throughput": draw_throughput,
        "efficiency": draw_efficiency,
        "accuracy": draw_accuracy,
    }
    if quantity not in functions:
        raise explain_unknown("chart", quantity, functions)
    if quantity == "accuracy" and not any(series.learns for series in all_series):
        reason = "nothing was trained to an accuracy (see --epochs)"
        raise InputError(f"there is no chart of accuracy: {reason}")
    # Dark on white: the colours of the page around it are not known.
    text = json.dumps(functions[quantity](all_series)).replace(json.dumps(INK), json.dumps(PAPER_INK))
    spec = json.loads(text)
    spec["config"]["background"] = "white"
    return alt.LayerChart.from_dict(spec)


# ---- against devices


def draw_speedup(all_series: Sequence[Series], frame: Frame = FULL) -> VegaSpec:
    shown = _select_with_speedup(all_series)
    notes = ["Up and to the right is better."]
    left_out = [series.title for series in all_series if series.good and not series.has_baseline]
    if left_out:
        names = wording.name_few(left_out)
        notes.append(f"Not shown, because there is no 1-device point: {names}.")
    rows = _make_rows(
        shown,
        lambda point: point.speedup,
        lambda _, value: f"Speed-up: {value.mean:.2f} · ",
    )
    ideal = [{"devices": devices, "value": devices} for devices in (1, _find_most_devices(shown))]
    plot = Plot("Speed-up against devices", notes, "Speed-up over 1 device", OCTAVES, shown, rows, ideal)
    return draw(all_series, plot, frame)


def draw_efficiency(all_series: Sequence[Series], frame: Frame = FULL) -> VegaSpec:
    shown = _select_with_speedup(all_series)
    rows = _make_rows(
        shown,
        lambda point: point.efficiency.scaled(100) if point.efficiency else None,
        lambda point, _: f"Efficiency: {numbers.format_efficiency(point.efficiency)} · ",
    )
    ideal = [{"devices": devices, "value": 100} for devices in (1, _find_most_devices(shown))]
    y_title = "Efficiency: speed-up / devices, %"
    notes = ["Higher is better."]
    plot = Plot("Efficiency against devices", notes, y_title, PERCENT, shown, rows, ideal)
    return draw(all_series, plot, frame)


def draw_throughput(all_series: Sequence[Series], frame: Frame = FULL, per_device: bool = False) -> VegaSpec:
    shown = [series for series in all_series if series.good]
    unit = find_common_unit(all_series)
    words = f"{unit.capitalize()} per second"
    if per_device:
        rows = _make_rows(
            shown,
            lambda point: rate.scaled(1 / point.devices) if (rate := point.samples_per_second) else None,
        )
        notes = ["Higher is better; level is ideal."]
        title, y_title = f"{words} and device against devices", f"{unit}/s, per device"
        return draw(all_series, Plot(title, notes, y_title, PERCENT, shown, rows), frame)
    rows = _make_rows(shown, lambda point: point.samples_per_second)
    ideal: list[Row] = []
    for series in shown:
        own = [row for row in rows if row["series"] == series.title]
        for devices in (own[0]["devices"], own[-1]["devices"]):
            value = own[0]["value"] / own[0]["devices"] * devices
            ideal.append({"series": series.title, "devices": devices, "value": value})
    notes = ["Up and to the right is better. Dashed: each series' own ideal."]
    title, y_title = f"{words} against devices", f"{unit}/s, whole cluster"
    plot = Plot(title, notes, y_title, DECADES, shown, rows, ideal)
    return draw(all_series, plot, frame)


def draw_memory(all_series: Sequence[Series], frame: Frame = FULL) -> VegaSpec:
    shown = [series for series in all_series if any(map(find_memory_peak, series.good))]
    devices = {series.config.device for series in shown}
    kind = "memory" if "cpu" in devices else "GPU memory"
    if devices == {"cpu"}:
        kind = "host memory"
    rows: list[Row] = []
    for series in shown:
        for point in series.good:
            if peak := find_memory_peak(point):
                size, host = map(numbers.format_size, (peak, point.host_peak_bytes))
                own = {"Peak": size, "Host": host, "Batch": _describe_batch(point)}
                value = Interval(peak / 2**30)
                rows.append(_make_row(series, point, value, f"Memory: {size}", own))
    notes = [f"Largest peak of {kind} of a rank. Lower is better."]
    y_title = f"Peak {kind} of a rank, GiB"
    plot = Plot("Memory against devices", notes, y_title, PERCENT, shown, rows)
    return draw(all_series, plot, frame)


def _select_with_speedup(all_series: Sequence[Series]) -> list[Series]:
    """Return series with a speed-up, if possible of several points."""
    with_baseline = [series for series in all_series if series.has_baseline]
    return [series for series in with_baseline if len(series.points) > 1] or with_baseline


def _find_most_devices(all_series: Sequence[Series]) -> int:
    return max((point.devices for series in all_series for point in series.points), default=1)


def _make_rows(
    shown: Sequence[Series],
    get: Callable[[Point], Interval | None],
    describe: Callable[[Point, Interval], str] = lambda *_: "",
) -> list[Row]:
    """Return a mark for each point that has the value."""
    rows = []
    for series in shown:
        for point in series.good:
            value, rate = get(point), point.samples_per_second
            if value is None or rate is None:
                continue
            limits = numbers.format_limits(point.speedup)
            speedup = numbers.format_times(point.speedup) + (f" ({limits})" if limits else "")
            speed = f"{numbers.format_number(rate.mean)} {point.unit}/s"
            tooltip = {
                "Speed-up": speedup,
                "Efficiency": numbers.format_efficiency(point.efficiency),
                "Cluster": f"{speed} {numbers.format_plus_minus(rate)}".strip(),
                "Per device": f"{numbers.format_number(rate.mean / point.devices)} {point.unit}/s",
                "Step": f"{numbers.format_milliseconds(point.step_seconds)} ms",
                "Batch": _describe_batch(point) if point.global_batch else "not stated",
            }
            text = f"{describe(point, value)}{rate.mean:.2f} {point.unit}/s"
            rows.append(_make_row(series, point, value, text, tooltip))
    return rows


def _describe_batch(point: Point) -> str:
    return f"{point.batch_per_device} per device, {point.global_batch} global"


def _make_row(series: Series, point: Point, value: Interval, text: str, tooltip: Mapping[str, str]) -> Row:
    return {
        "series": series.title,
        "devices": point.devices,
        "hosts": point.hosts,
        "value": value.mean,
        "low": value.low,
        "high": value.high,
        "text": f"{text} · {wording.format_devices_and_hosts(point)} · {series.title}",
        **tooltip,
    }


# ---- accuracy: each point of a series is two lines


@without_schema_checks
def draw_accuracy(all_series: Sequence[Series], frame: Frame = FULL, over_time: bool = False) -> VegaSpec:
    learning = [(series, point) for series in all_series for point in series.points if point.learning]
    with_devices = any(len(series.points) > 1 for series, _ in learning)
    lines = {}
    for series, point in learning:
        devices = f" · {wording.format_devices_and_hosts(point)}" if with_devices else ""
        lines[f"{series.title}{devices}"] = point
    lasts = [point.learning.last for point in lines.values() if point.learning]
    if over_time:
        longest = max((last.trained_seconds for last in lasts), default=0.0)
        unit, length = next((unit, length) for unit, length, least in _UNITS if longest >= least)
        scale = alt.Scale(domain=[0, longest / length * 1.03], nice=False)
        x = alt.X("x:Q", title=f"Training time, {unit} (without validation)", scale=scale)
    else:
        last = max((last.epoch for last in lasts), default=1)
        ticks = list(range(1, last + 1)) if last <= 10 else alt.Undefined
        scale = alt.Scale(zero=False, nice=False, padding=10)
        x = alt.X("x:Q", title="Epoch", scale=scale, axis=alt.Axis(format="d", values=ticks))
    rows: list[Row] = []
    for name, point in lines.items():
        for epoch in point.learning.epochs if point.learning else ():
            valid = numbers.format_accuracy(epoch.valid_accuracy)
            train = numbers.format_accuracy(epoch.train_accuracy)
            trained = numbers.format_duration(epoch.trained_seconds)
            place = epoch.trained_seconds / length if over_time else float(epoch.epoch)
            text = f"Epoch {epoch.epoch}: validation {valid}, training {train}, after {trained} · {name}"
            shown = {"Series": name, "Epoch": epoch.epoch, "Validation": valid, "Training": train}
            row = {"line": name, "x": place, "text": text, **shown, "Trained for": trained}
            rows.append({**row, "of": _VALID, "accuracy": epoch.valid_accuracy.mean})
            rows.append({**row, "of": _TRAIN, "accuracy": epoch.train_accuracy.mean})
    reached = [point.learning.to_accuracy for point in lines.values() if point.learning]
    targets = sorted({target.target for target in reached if target})
    values = [row["accuracy"] for row in rows] + targets
    pad = max(0.02, (max(values) - min(values)) * 0.05)
    scale = alt.Scale(domain=[max(0.0, min(values) - pad), min(1.0, max(values) + pad)], nice=False)
    y = alt.Y("accuracy:Q", title="Accuracy", scale=scale, axis=alt.Axis(format=".2f"))
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(lines))]
    stroke = {"symbolType": "stroke", "symbolStrokeWidth": 3}
    legend = make_legend(list(lines), frame, direction="vertical", columns=1, **stroke)
    colour = alt.Color("line:N", scale=alt.Scale(domain=list(lines), range=colours), legend=legend)
    dashes = alt.Scale(domain=[_VALID, _TRAIN], range=[[1, 0], [5, 4]])
    dash = alt.StrokeDash("of:N", scale=dashes, legend=None)
    layers = []
    grey = {"color": alt.value(IDEAL)}
    for target in targets:  # a grey line, with its value at the left
        level = chart_rows([{"accuracy": target, "name": f"{target:g}"}])
        layers.append(level.mark_rule(strokeDash=[2, 3], strokeWidth=1.2, aria=False).encode(y, **grey))
        text_mark = level.mark_text(align="left", dx=4, dy=-7, fontSize=11, aria=False)
        layers.append(text_mark.encode(y, x=alt.value(0), text="name:N", **grey))
    valid_rows = [row for row in rows if row["of"] == _VALID]
    marks = chart_rows(valid_rows).mark_point(filled=True, size=40 if len(valid_rows) < 150 else 10)
    tooltip = ["Series:N", "Epoch:N", "Validation:N", "Training:N", "Trained for:N"]
    layers += [
        chart_rows(rows).mark_line(strokeWidth=2, aria=False).encode(x, y, colour, dash),
        marks.encode(x, y, colour, description="text:N", tooltip=tooltip),
    ]
    notes = ["Up and to the left is better. Solid: validation; dashed: training."]
    if any(point.repeats > 1 for point in lines.values()):
        notes.append("Means over repeats.")
    title = "Accuracy over training time" if over_time else "Accuracy over epochs"
    return apply_theme(layers, title, notes, frame)
