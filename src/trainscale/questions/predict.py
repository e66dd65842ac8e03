"""What more devices would bring, with an interval, or why that would be a guess.

The law: with every further doubling, the logarithm of the efficiency changes as it did between the last two points.
Its interval comes from the errors of published curves, continued from their first points, in units of the steepest
slope of the given points. In these units, errors of weak and strong scaling and of one and two doublings are alike.
bench/prediction.py compares the law on published curves with what one would compute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ..analyse.series import Point, Series
from ..analyse.statistics import Interval
from ..errors import InputError
from ..record.run import RunInfo
from ..report.documents import Grid, Section, encode_json, escape, pick, print_sections
from ..report.numbers import THIN, format_limits, format_mean, format_number, format_percent
from ..spec.config import Config

if TYPE_CHECKING:
    from ..runs import Run

SCHEMA = 1  # of the JSON
LEAST_POINTS = 3
MOST_TIMES = 4  # as many devices as were measured; published curves have too few points to know more
_WIDEST = 4.0  # times the lower end of an interval: a wider one is no answer
_LEAST_SLOPE = 0.01  # of a unit: no curve is known to be smoother than 1 % for each doubling

Curve = Sequence[tuple[int, float]]  # devices, in increasing order, and samples per second of all of them


@dataclass(frozen=True)
class ErrorRange:
    """95 % of log(predicted / published) lie between these, in units."""

    low: float
    high: float
    cases: int


# Of published points beyond the first ones of their curve, as bench/prediction.py collects them.
PUBLISHED_ERRORS = ErrorRange(-1.0740312374246492, 6.012527238089489, 204)


@dataclass(frozen=True)
class HeldOut:
    devices: int
    predicted: Interval
    measured: float


@dataclass(frozen=True)
class Prediction:
    """``efficiency`` is None without a 1-device point."""

    devices: int
    samples_per_second: Interval
    efficiency: Interval | None
    given: tuple[int, ...]  # the device counts that it is based on
    errors: ErrorRange
    held_out: HeldOut | None


@dataclass(frozen=True)
class Refusal:
    """Why nothing is predicted. Results on ``measure`` would change that."""

    devices: int
    reason: str
    measure: tuple[int, ...] = ()


@dataclass(frozen=True)
class PredictedSeries:
    """The answers for one series, in the order asked for."""

    series: Series
    answers: tuple[Prediction | Refusal, ...]

    @property
    def predictions(self) -> list[Prediction]:
        return [answer for answer in self.answers if isinstance(answer, Prediction)]

    @property
    def refusals(self) -> list[Refusal]:
        return [answer for answer in self.answers if isinstance(answer, Refusal)]


def predict(run: Run, devices: Sequence[int] | None = None) -> list[PredictedSeries]:
    all_predicted = []
    for series in select_ladders(run).series:
        if series.good:
            most, host_devices = series.good[-1].devices, count_devices_of_host(run.info, series.config)
            counts = devices or (2 * most, MOST_TIMES * most)
            answers = tuple(predict_series(series, count, host_devices) for count in counts)
            all_predicted.append(PredictedSeries(series, answers))
    if not all_predicted:
        raise InputError(f"{run.directory}: every trial of this run failed; its report says why")
    return all_predicted


def select_ladders(run: Run) -> Run:
    """Leave out what is measured beside a ladder."""
    strategies = {series.get("strategy") for series in run.info.read_spec().series} - {None}
    beside = "independent" if strategies and "independent" not in strategies else None
    return run.select(lambda record: not record.trial.short and record.trial.config.strategy != beside)


def count_devices_of_host(run: RunInfo, config: Config) -> int | None:
    """Return the devices of the smallest host; None if not recorded."""
    machines = run.read_provenance().machines
    if config.device == "cuda":
        return min((len(machine.gpus) * max(1, config.ranks_per_gpu) for machine in machines), default=None)
    cores = [machine.cores // max(1, config.cores_per_device) for machine in machines if machine.cores]
    return min(cores, default=None)


def predict_series(series: Series, devices: int, host_devices: int | None) -> Prediction | Refusal:
    """Return what a series would reach, or why that would be a guess."""
    points = series.good
    counts = [point.devices for point in points]
    if devices in counts:
        return Refusal(devices, "it was measured, so there is nothing to predict")
    if len(counts) < LEAST_POINTS:
        powers = [2**power for power in range(devices.bit_length()) if 2**power < devices]
        measure = tuple(power for power in powers if power not in counts)[: LEAST_POINTS - len(counts)]
        reason = f"a trend needs results on {LEAST_POINTS} device counts, and this series has {len(counts)}"
        return Refusal(devices, reason, measure)
    *others, largest = points
    most, twice = largest.devices, (2 * largest.devices,) if devices > 2 * largest.devices else ()
    if devices < most:
        return Refusal(devices, f"it is less than the {most} devices that were measured", (devices,))
    if devices > MOST_TIMES * most:
        reason = f"it is more than {MOST_TIMES} times the {most} devices that were measured"
        return Refusal(devices, reason, (math.ceil(devices / MOST_TIMES),))
    beyond = sum(point.hosts > 1 for point in points)
    if not beyond and (host_devices is None or devices > host_devices):
        reason = "all points are on one host, and what a network between hosts costs is not known"
        return Refusal(devices, reason)
    if beyond == 1:
        reason = "only one point is on several hosts, so its loss may be that of the first host boundary alone"
        return Refusal(devices, reason, twice)
    speed = _continue(points, devices)
    if speed.low is not None and speed.high is not None and speed.high > _WIDEST * speed.low:
        limits = f"{speed.low:,.0f} to {speed.high:,.0f} {series.unit}/s"
        return Refusal(devices, f"the curve is so steep that the interval would be {limits}", twice)
    assert points[0].samples_per_second is not None
    assert largest.samples_per_second is not None
    efficiency = speed.scaled(1 / (points[0].samples_per_second.mean * devices)) if counts[0] == 1 else None
    crosses_first_host = largest.hosts > 1 and others[-1].hosts == 1
    held_out = None
    if len(others) >= LEAST_POINTS and not crosses_first_host and most <= MOST_TIMES * others[-1].devices:
        held_out = HeldOut(most, _continue(others, most), largest.samples_per_second.mean)
    return Prediction(devices, speed, efficiency, tuple(counts), PUBLISHED_ERRORS, held_out)


def _continue(points: Sequence[Point], devices: int) -> Interval:
    speeds = [point.samples_per_second for point in points if point.samples_per_second]
    curve: Curve = [(point.devices, speed.mean) for point, speed in zip(points, speeds, strict=True)]
    speed, unit, errors = continue_curve(curve, devices), compute_unit(curve, devices), PUBLISHED_ERRORS
    # The trend between the last two points is continued, so their noise is, too.
    widths = [speed.relative or 0.0 for speed in speeds[-2:]]
    steps = count_doublings(curve, devices) / math.log2(points[-1].devices / points[-2].devices)
    noise = math.hypot(widths[1] * (1 + steps), widths[0] * steps)
    # A high score is a prediction that was too high, so it makes the lower end here.
    below = math.hypot(max(0.0, errors.high) * unit, noise)
    above = math.hypot(max(0.0, -errors.low) * unit, noise)
    return Interval(speed, speed * math.exp(-below), speed * math.exp(above))


# ---- the law, and its errors


def continue_curve(curve: Curve, devices: int) -> float:
    last_devices, last_speed = curve[-1]
    slope = min(0.0, compute_slopes(curve)[-1])  # more devices do not make each of them faster
    return last_speed / last_devices * devices * math.exp(slope * count_doublings(curve, devices))


def count_doublings(curve: Curve, devices: int) -> float:
    return math.log2(devices / curve[-1][0])


def compute_slopes(curve: Curve) -> list[float]:
    logs = [(math.log2(devices), math.log(speed / devices)) for devices, speed in curve]
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(logs)]


def compute_unit(curve: Curve, devices: int) -> float:
    """Return the unit of errors: the steepest slope for each doubling."""
    return max(_LEAST_SLOPE, *map(abs, compute_slopes(curve))) * count_doublings(curve, devices)


# ---- in words, for people and programs


def explain_method() -> str:
    return (
        "A prediction continues the trend of the last two measured points. Its interval is as wide as such predictions"
        f" were wrong on {PUBLISHED_ERRORS.cases} published points of up to {MOST_TIMES} times as many"
        " devices, in proportion to the steepest part of the curve, and contains the noise of the measured points."
    )


def describe_held_out(held_out: HeldOut, unit: str) -> str:
    low, high = held_out.predicted.low, held_out.predicted.high
    is_inside = low is not None and high is not None and low <= held_out.measured <= high
    error = held_out.predicted.mean / held_out.measured - 1
    return (
        f"Test on this curve: from its smaller points, {format_number(held_out.predicted.mean)} {unit}/s"
        f" ({format_limits(held_out.predicted)}) are predicted for {held_out.devices} devices;"
        f" {format_number(held_out.measured)} were measured: {abs(error) * 100:.1f}{THIN}% too"
        f" {'high' if error > 0 else 'low'}, {'inside' if is_inside else 'OUTSIDE'} the interval."
    )


def print_predictions(all_predicted: Sequence[PredictedSeries]) -> None:
    has_any = any(predicted.predictions for predicted in all_predicted)
    print_sections(map(_make_section, all_predicted), explain_method() if has_any else "")


def render_prediction_markdown(all_predicted: Sequence[PredictedSeries]) -> str:
    blocks = []
    for section in map(_make_section, all_predicted):
        assert section.grid is not None
        blocks.append(f"### {escape(section.heading)}\n\n{section.grid.to_markdown()}")
        blocks += [f"{escape(sentence)}\n" for sentence in section.paragraphs]
    if any(predicted.predictions for predicted in all_predicted):
        blocks.append(f"* predicted. {explain_method()}\n")
    return "\n".join(blocks)


def render_prediction_json(all_predicted: Sequence[PredictedSeries]) -> str:
    series = [
        {
            **pick(predicted.series, "title unit"),
            "measured": [pick(point, "devices samples_per_second") for point in predicted.series.good],
            **pick(predicted, "predictions refusals"),
        }
        for predicted in all_predicted
    ]
    return encode_json({"schema": SCHEMA, "method": explain_method(), "series": series})


def _make_section(predicted: PredictedSeries) -> Section:
    rows = []
    for mark, items in (("", predicted.series.good), (" *", predicted.predictions)):
        for item in items:
            speed, share = item.samples_per_second, item.efficiency
            limits = ""
            if share and share.low is not None and share.high is not None:
                limits = f"{share.low * 100:.0f}–{share.high * 100:.0f}{THIN}%"
            percent = format_percent(share.mean if share else None)
            rows.append((f"{item.devices}{mark}", format_mean(speed), format_limits(speed), percent, limits))
    series = predicted.series
    header = ("devices", f"{series.unit}/s", "95 % interval", "efficiency", "95 % interval")
    title = f"{series.title} (* predicted)" if predicted.predictions else series.title
    sentences = []
    for refusal in predicted.refusals:
        counts = ", ".join(map(str, refusal.measure))
        advice = f"; results on {counts} devices would change that" if counts else ""
        sentences.append(f"{refusal.devices} devices: no prediction, because {refusal.reason}{advice}.")
    if tests := [answer.held_out for answer in predicted.predictions if answer.held_out]:
        sentences.append(describe_held_out(tests[0], series.unit))
    return Section(series.title, sentences, Grid(title, header, tuple(rows), left=()))
