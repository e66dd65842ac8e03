"""Predictions for people and programs: a table and sentences for every series, in a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import fill

from rich.console import Console
from rich.text import Text

from ...analyse.statistics import Interval
from ...report.numbers import THIN, format_limits, format_percent, format_rate
from ...report.table import Grid, TerminalGrid, escape, render_markdown
from .predict import MOST_TIMES, HeldOut, PredictedSeries, estimate_published_errors

SCHEMA = 1


def explain_method() -> str:
    return (
        "A prediction continues the trend of the last two measured points. Its interval is as wide as such predictions"
        f" were wrong on {estimate_published_errors().cases} published points of up to {MOST_TIMES} times as many"
        " devices, in proportion to the steepest part of the curve, and contains the noise of the measured points."
    )


def describe_held_out(held_out: HeldOut, unit: str) -> str:
    place = "inside" if held_out.is_inside else "OUTSIDE"
    error = f"{abs(held_out.error) * 100:.1f}{THIN}% too {'high' if held_out.error > 0 else 'low'}"
    return (
        f"Test on this curve: from its smaller points, {format_rate(held_out.predicted.mean)} {unit}/s"
        f" ({format_limits(held_out.predicted)}) are predicted for {held_out.devices} devices;"
        f" {format_rate(held_out.measured)} were measured: {error}, {place} the interval."
    )


def print_predictions(all_predicted: Sequence[PredictedSeries]) -> None:
    console = Console(highlight=False)
    for predicted in all_predicted:
        console.print(TerminalGrid(_make_grid(predicted)), end="")
        for sentence in _list_sentences(predicted):
            print(fill(sentence, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    if any(predicted.predictions for predicted in all_predicted):
        console.print(Text(explain_method(), style="dim"))


def render_prediction_markdown(all_predicted: Sequence[PredictedSeries]) -> str:
    blocks = []
    for predicted in all_predicted:
        blocks.append(f"### {escape(predicted.series.title)}\n\n{render_markdown(_make_grid(predicted))}")
        blocks += [f"{escape(sentence)}\n" for sentence in _list_sentences(predicted)]
    if any(predicted.predictions for predicted in all_predicted):
        blocks.append(f"* predicted. {explain_method()}\n")
    return "\n".join(blocks)


def render_prediction_json(all_predicted: Sequence[PredictedSeries]) -> str:
    series = []
    for predicted in all_predicted:
        measured = [
            {
                "devices": point.devices,
                "samples_per_second": asdict(point.samples_per_second) if point.samples_per_second else None,
            }
            for point in predicted.series.good
        ]
        series.append(
            {
                "title": predicted.series.title,
                "unit": predicted.series.unit,
                "measured": measured,
                "predictions": [asdict(answer) for answer in predicted.predictions],
                "refusals": [asdict(answer) for answer in predicted.refusals],
            }
        )
    return json.dumps({"schema": SCHEMA, "method": explain_method(), "series": series}, indent=2) + "\n"


def _make_grid(predicted: PredictedSeries) -> Grid:
    """Return the measured points, and the predicted ones below them. A predicted count is marked with ``*``."""
    series = predicted.series
    rows = [
        (f"{item.devices}{mark}", *_format_speed(item.samples_per_second), *_format_share(item.efficiency))
        for items, mark in ((series.good, ""), (predicted.predictions, " *"))
        for item in items
    ]
    header = ("devices", f"{series.unit}/s", "95 % interval", "efficiency", "95 % interval")
    title = f"{series.title} (* predicted)" if predicted.predictions else series.title
    return Grid(title, header, tuple(rows), left=())


def _list_sentences(predicted: PredictedSeries) -> Iterator[str]:
    """Yield what the table does not say: why there is no prediction, and how the largest point would be predicted."""
    for refusal in predicted.refusals:
        counts = ", ".join(map(str, refusal.measure))
        advice = f"; results on {counts} devices would change that" if counts else ""
        yield f"{refusal.devices} devices: no prediction, because {refusal.reason}{advice}."
    held_out = next((answer.held_out for answer in predicted.predictions if answer.held_out), None)
    if held_out:
        yield describe_held_out(held_out, predicted.series.unit)


def _format_speed(interval: Interval | None) -> tuple[str, str]:
    return format_rate(interval.mean if interval else None), format_limits(interval)


def _format_share(interval: Interval | None) -> tuple[str, str]:
    if interval is None or interval.low is None or interval.high is None:
        return format_percent(interval.mean if interval else None), ""
    return format_percent(interval.mean), f"{interval.low * 100:.0f}–{interval.high * 100:.0f}{THIN}%"
