"""The charts of training to an accuracy: over epochs, and over training time.

Each point of a series is a line. Validation is a solid line, training a dashed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import altair as alt

from ..analyse.series import EpochMeans, Point, Series, ToAccuracy
from . import numbers, palette, wording
from .drawing import Frame, Row, VegaSpec, apply_theme, chart_rows, without_schema_checks

_TRAIN, _VALID = "training", "validation"
# A unit of time, its seconds, and the shortest training that is shown in it.
_UNITS = (("hours", 3600.0, 7200.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))
_MANY_MARKS = 150


def draw_accuracy(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of accuracy after every epoch."""
    lines = _name_lines(all_series)
    last = max((point.learning.last.epoch for point in lines.values() if point.learning), default=1)
    x = alt.X(
        "x:Q",
        title="Epoch",
        scale=alt.Scale(zero=False, nice=False, padding=10),
        axis=alt.Axis(format="d", values=list(range(1, last + 1)) if last <= 10 else alt.Undefined),
    )
    return _draw(lines, "Accuracy over epochs", x, lambda epoch: float(epoch.epoch), frame or Frame())


def draw_accuracy_over_time(all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
    """Return the chart of accuracy against training time, which shows what more devices gain."""
    lines = _name_lines(all_series)
    longest = max((point.learning.last.trained_seconds for point in lines.values() if point.learning), default=0.0)
    unit, length = next((unit, length) for unit, length, least in _UNITS if longest >= least)
    scale = alt.Scale(domain=[0, longest / length * 1.03], nice=False)
    x = alt.X("x:Q", title=f"Training time, {unit} (without validation)", scale=scale)
    return _draw(
        lines, "Accuracy over training time", x, lambda epoch: epoch.trained_seconds / length, frame or Frame()
    )


@without_schema_checks
def _draw(
    lines: Mapping[str, Point], title: str, x: alt.X, position: Callable[[EpochMeans], float], frame: Frame
) -> VegaSpec:
    rows = [row for name, point in lines.items() for row in _make_rows(name, point, position)]
    targets = sorted({reached.target for point in lines.values() if (reached := _find_time_to_accuracy(point))})
    y = _make_y_axis([row["accuracy"] for row in rows] + targets)
    colour = _make_colour(list(lines), frame)
    dash = alt.StrokeDash("of:N", scale=alt.Scale(domain=[_VALID, _TRAIN], range=[[1, 0], [5, 4]]), legend=None)
    curves = chart_rows(rows).mark_line(strokeWidth=2, aria=False)
    valid = [row for row in rows if row["of"] == _VALID]
    marks = chart_rows(valid).mark_point(filled=True, size=40 if len(valid) < _MANY_MARKS else 10)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("Series", "Epoch", "Validation", "Training", "Trained for")]
    layers = [
        *(layer for target in targets for layer in _make_target_layers(target, y)),
        curves.encode(x, y, colour, dash),
        marks.encode(x, y, colour, description=alt.Description("text:N"), tooltip=tooltip),
    ]
    notes = ["Up and to the left is better. Solid: validation; dashed: training."]
    if any(point.repeats > 1 for point in lines.values()):
        notes.append("Means over repeats.")
    return apply_theme(layers, title, notes, frame)


def _name_lines(all_series: Sequence[Series]) -> dict[str, Point]:
    """Return every point that learns by its name in the legend."""
    learning = [(series, point) for series in all_series for point in series.points if point.learning]
    if all(len(series.points) == 1 for series, _ in learning):
        return {series.title: point for series, point in learning}
    return {f"{series.title} · {wording.format_devices_and_hosts(point)}": point for series, point in learning}


def _make_rows(name: str, point: Point, position: Callable[[EpochMeans], float]) -> Iterator[Row]:
    assert point.learning is not None
    for epoch in point.learning.epochs:
        valid, train = numbers.format_accuracy(epoch.valid_accuracy), numbers.format_accuracy(epoch.train_accuracy)
        trained = numbers.format_duration(epoch.trained_seconds)
        shared = {
            "line": name,
            "x": position(epoch),
            "text": f"Epoch {epoch.epoch}: validation {valid}, training {train}, after {trained} · {name}",
            "Series": name,
            "Epoch": epoch.epoch,
            "Validation": valid,
            "Training": train,
            "Trained for": trained,
        }
        yield {**shared, "of": _VALID, "accuracy": epoch.valid_accuracy.mean}
        yield {**shared, "of": _TRAIN, "accuracy": epoch.train_accuracy.mean}


def _make_y_axis(values: Sequence[float]) -> alt.Y:
    low, high = min(values), max(values)
    pad = max(0.02, (high - low) * 0.05)
    domain = [max(0.0, low - pad), min(1.0, high + pad)]
    scale = alt.Scale(domain=domain, nice=False)
    return alt.Y("accuracy:Q", title="Accuracy", scale=scale, axis=alt.Axis(format=".2f"))


def _make_colour(names: Sequence[str], frame: Frame) -> alt.Color:
    return alt.Color(
        "line:N",
        scale=alt.Scale(domain=names, range=[palette.choose_colour(index) for index in range(len(names))]),
        legend=alt.Legend(
            title=None,
            orient="bottom",
            direction="vertical",
            columns=1,
            labelLimit=frame.width,
            symbolType="stroke",
            symbolStrokeWidth=3,
        ),
    )


def _make_target_layers(value: float, y: alt.Y) -> list[alt.Chart]:
    """Return a grey line at an accuracy that was to be reached, with its value at the left."""
    grey = {"color": alt.ColorValue(palette.IDEAL)}
    row = chart_rows([{"accuracy": value, "name": f"{value:g}"}])
    line = row.mark_rule(strokeDash=[2, 3], strokeWidth=1.2, aria=False).encode(y, **grey)
    name = row.mark_text(align="left", dx=4, dy=-7, fontSize=11, aria=False)
    return [line, name.encode(y, x=alt.value(0), text=alt.Text("name:N"), **grey)]


def _find_time_to_accuracy(point: Point) -> ToAccuracy | None:
    return point.learning.to_accuracy if point.learning else None
