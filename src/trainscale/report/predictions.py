"""Predictions of a run for people and programs: a table and sentences for every series, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ..analyse.prediction.calibration import MOST_TIMES, estimate_published_errors
from ..analyse.prediction.predict import HeldOut, Prediction, Refusal
from ..analyse.series import Series
from ..analyse.statistics import Interval
from .grid import Grid, escape, render_markdown
from .numbers import THIN, format_limits, format_percent, format_rate

SCHEMA = 1
_HEADER = ("devices", "{unit}/s", "95 % interval", "efficiency", "95 % interval")


@dataclass(frozen=True)
class PredictedSeries:
    """The answers for one series, in the order in which device counts were asked for."""

    series: Series
    answers: tuple[Prediction | Refusal, ...]

    @property
    def predictions(self) -> list[Prediction]:
        return [answer for answer in self.answers if isinstance(answer, Prediction)]


def explain_method() -> str:
    return (
        "A prediction continues the trend of the last two measured points. Its interval is as wide as such predictions"
        f" were wrong on {estimate_published_errors().cases} published points of up to {MOST_TIMES} times as many"
        " devices, in proportion to the steepest part of the curve, and contains the noise of the measured points."
    )


def make_prediction_grid(predicted: PredictedSeries) -> Grid:
    """Return the measured points, and the predicted ones below them. A predicted count is marked with ``*``."""
    series = predicted.series
    rows = [
        (f"{item.devices}{mark}", *_format_speed(item.samples_per_second), *_format_share(item.efficiency))
        for items, mark in ((series.good, ""), (predicted.predictions, " *"))
        for item in items
    ]
    header = tuple(name.format(unit=series.unit) for name in _HEADER)
    return Grid(f"{series.title} (* predicted)", header, tuple(rows), left=())


def list_sentences(predicted: PredictedSeries) -> Iterator[str]:
    """Yield what the table does not say: why there is no prediction, and how the largest point would be predicted."""
    for answer in predicted.answers:
        if isinstance(answer, Refusal):
            counts = ", ".join(map(str, answer.measure))
            advice = f"; results on {counts} devices would change that" if answer.measure else ""
            yield f"{answer.devices} devices: no prediction, because {answer.reason}{advice}."
    held_out = next((answer.held_out for answer in predicted.predictions if answer.held_out), None)
    if held_out:
        yield describe_held_out(held_out, predicted.series.unit)


def describe_held_out(held_out: HeldOut, unit: str) -> str:
    place = "inside" if held_out.is_inside else "OUTSIDE"
    error = f"{abs(held_out.error) * 100:.1f}{THIN}% too {'high' if held_out.error > 0 else 'low'}"
    return (
        f"Test on this curve: from its smaller points, {format_rate(held_out.predicted.mean)} {unit}/s"
        f" ({format_limits(held_out.predicted)}) are predicted for {held_out.devices} devices;"
        f" {format_rate(held_out.measured)} were measured: {error}, {place} the interval."
    )


def render_prediction_markdown(all_predicted: Sequence[PredictedSeries]) -> str:
    blocks = []
    for predicted in all_predicted:
        blocks.append(f"### {escape(predicted.series.title)}\n\n{render_markdown(make_prediction_grid(predicted))}")
        blocks += [f"{escape(sentence)}\n" for sentence in list_sentences(predicted)]
    return "\n".join([*blocks, f"* predicted. {explain_method()}\n"])


def render_prediction_json(all_predicted: Sequence[PredictedSeries]) -> str:
    document = {
        "schema": SCHEMA,
        "method": explain_method(),
        "series": [
            {
                "title": predicted.series.title,
                "unit": predicted.series.unit,
                "measured": [
                    {"devices": point.devices, "samples_per_second": _encode_interval(point.samples_per_second)}
                    for point in predicted.series.good
                ],
                "predictions": [asdict(answer) for answer in predicted.predictions],
                "refusals": [asdict(answer) for answer in predicted.answers if isinstance(answer, Refusal)],
            }
            for predicted in all_predicted
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _encode_interval(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else asdict(interval)


def _format_speed(interval: Interval | None) -> tuple[str, str]:
    return format_rate(interval.mean if interval else None), format_limits(interval)


def _format_share(interval: Interval | None) -> tuple[str, str]:
    limits = interval if interval and interval.low is not None and interval.high is not None else None
    text = f"{limits.low * 100:.0f}–{limits.high * 100:.0f}{THIN}%" if limits else ""  # type: ignore[operator]
    return format_percent(interval.mean if interval else None), text
