"""Continues the ladder of a series to more devices, with an interval and a test on its own largest point, or says why
that would be a guess.

The law: the logarithm of the efficiency changes with every further doubling as it did between the last two points. Its
interval comes from the errors of every published curve, continued from its first points to a later one that is known.
They are counted in units of the steepest slope of the given points, so that smooth curves have narrow intervals. In
these units, errors of weak and strong scaling and of one and two doublings are alike, and together they are enough for
quantiles. bench/prediction.py compares the law on published curves with what one would compute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ...analyse.series import Point, Series
from ...analyse.statistics import CONFIDENCE, Interval
from ...errors import InputError
from ...record.run import RunInfo
from ...spec.config import Config
from ..published.curves import PublishedCurve, read_curves

if TYPE_CHECKING:
    from ...runs import Run

_WIDEST = 4.0  # times the lower end of an interval: a wider one is no answer
LEAST_POINTS = 3
MOST_TIMES = 4  # as many devices as were measured; published curves have too few points to know more
_LEAST_SLOPE = 0.01  # of a unit: no curve is known to be smoother than 1 % for each doubling


Curve = Sequence[tuple[int, float]]  # devices, in increasing order, and samples per second of all of them


@dataclass(frozen=True)
class ErrorRange:
    """The scores between which 95 % of published cases lie."""

    low: float
    high: float
    cases: int


@dataclass(frozen=True)
class HeldOut:
    """The largest measured point, predicted from the others. ``is_inside``: it lies in the interval."""

    devices: int
    predicted: Interval
    measured: float

    @property
    def is_inside(self) -> bool:
        low, high = self.predicted.low, self.predicted.high
        return low is not None and high is not None and low <= self.measured <= high

    @property
    def error(self) -> float:
        """Return the share by which the prediction is too high."""
        return self.predicted.mean / self.measured - 1


@dataclass(frozen=True)
class Prediction:
    """``efficiency`` is None without a 1-device point. ``held_out`` is None if there are too few points to try it."""

    devices: int
    samples_per_second: Interval
    efficiency: Interval | None
    given: tuple[int, ...]  # the device counts that it is based on
    errors: ErrorRange
    held_out: HeldOut | None


@dataclass(frozen=True)
class Refusal:
    """Why nothing is predicted for a device count. ``measure`` are device counts whose results would change that."""

    devices: int
    reason: str
    measure: tuple[int, ...] = ()


@dataclass(frozen=True)
class PredictedSeries:
    """The answers for one series, in the order in which device counts were asked for."""

    series: Series
    answers: tuple[Prediction | Refusal, ...]

    @property
    def predictions(self) -> list[Prediction]:
        return [answer for answer in self.answers if isinstance(answer, Prediction)]

    @property
    def refusals(self) -> list[Refusal]:
        return [answer for answer in self.answers if isinstance(answer, Refusal)]


def predict(run: Run, devices: Sequence[int] | None = None) -> list[PredictedSeries]:
    """Predict every series of a run with a result; by default for 2 and 4 times the most devices that were measured."""
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


def predict_series(series: Series, devices: int, host_devices: int | None) -> Prediction | Refusal:
    """Return what a series would reach on more devices. ``host_devices`` is how many one host has, if known."""
    points = series.good
    refusal = _refuse(points, devices, host_devices)
    if refusal:
        return refusal
    speed = _continue(points, devices)
    if speed.low is not None and speed.high is not None and speed.high > _WIDEST * speed.low:
        limits = f"{speed.low:,.0f} to {speed.high:,.0f} {series.unit}/s"
        reason = f"the curve is so steep that the interval would be {limits}"
        return Refusal(devices, reason, (2 * points[-1].devices,) if devices > 2 * points[-1].devices else ())
    baseline = next((point.samples_per_second for point in points if point.devices == 1), None)
    *others, largest = points
    assert largest.samples_per_second is not None
    crosses_first_host = largest.hosts > 1 and others[-1].hosts == 1
    held_out = None
    if len(others) >= LEAST_POINTS and not crosses_first_host and largest.devices <= MOST_TIMES * others[-1].devices:
        held_out = HeldOut(largest.devices, _continue(others, largest.devices), largest.samples_per_second.mean)
    return Prediction(
        devices,
        speed,
        efficiency=speed.scaled(1 / (baseline.mean * devices)) if baseline else None,
        given=tuple(point.devices for point in points),
        errors=estimate_published_errors(),
        held_out=held_out,
    )


def _refuse(points: Sequence[Point], devices: int, host_devices: int | None) -> Refusal | None:
    counts = [point.devices for point in points]
    if devices in counts:
        return Refusal(devices, "it was measured, so there is nothing to predict")
    if len(counts) < LEAST_POINTS:
        powers = [2**power for power in range(devices.bit_length()) if 2**power < devices]
        measure = tuple(power for power in powers if power not in counts)[: LEAST_POINTS - len(counts)]
        reason = f"a trend needs results on {LEAST_POINTS} device counts, and this series has {len(counts)}"
        return Refusal(devices, reason, measure)
    most = counts[-1]
    if devices < most:
        return Refusal(devices, f"it is less than the {most} devices that were measured", (devices,))
    if devices > MOST_TIMES * most:
        reason = f"it is more than {MOST_TIMES} times the {most} devices that were measured"
        return Refusal(devices, reason, (math.ceil(devices / MOST_TIMES),))
    beyond = sum(point.hosts > 1 for point in points)
    if not beyond and (host_devices is None or devices > host_devices):
        return Refusal(devices, "all points are on one host, and what a network between hosts costs is not known")
    if beyond == 1:
        reason = "only one point is on several hosts, so its loss may be that of the first host boundary alone"
        return Refusal(devices, reason, (2 * most,) if 2 * most < devices else ())
    return None


def _continue(points: Sequence[Point], devices: int) -> Interval:
    curve: Curve = [(point.devices, point.samples_per_second.mean) for point in points if point.samples_per_second]
    speed, unit, errors = continue_curve(curve, devices), compute_unit(curve, devices), estimate_published_errors()
    # The trend between the last two points is continued, so their noise is, too.
    widths = [(point.samples_per_second.relative or 0.0) if point.samples_per_second else 0.0 for point in points[-2:]]
    steps = count_doublings(curve, devices) / math.log2(points[-1].devices / points[-2].devices)
    noise = math.hypot(widths[1] * (1 + steps), widths[0] * steps)
    # A score above zero is a prediction that was too high, so the upper end of the scores is the lower end here.
    below = math.hypot(max(0.0, errors.high) * unit, noise)
    above = math.hypot(max(0.0, -errors.low) * unit, noise)
    return Interval(speed, speed * math.exp(-below), speed * math.exp(above))


def select_ladders(run: Run) -> Run:
    """Return the run without the short trials of a search and those that --explain measures beside a ladder."""
    strategies = run.info.read_spec().strategies
    has_further = bool(strategies) and "independent" not in strategies
    return run.select(
        lambda record: not record.trial.short and not (has_further and record.trial.config.strategy == "independent")
    )


def count_devices_of_host(run: RunInfo, config: Config) -> int | None:
    """Return how many devices the smallest host of a run has for this config. None where the run did not record it."""
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    if config.device == "cuda":
        return min((len(machine.gpus) * max(1, config.ranks_per_gpu) for machine in machines), default=None)
    cores = [machine.cores // max(1, config.cores_per_device) for machine in machines if machine.cores]
    return min(cores, default=None)


# ---- the law


def continue_curve(curve: Curve, devices: int) -> float:
    """Return the samples per second on more devices than the curve has."""
    last_devices, last_speed = curve[-1]
    slope = min(0.0, compute_slopes(curve)[-1])  # more devices do not make each of them faster
    return last_speed / last_devices * devices * math.exp(slope * count_doublings(curve, devices))


def count_doublings(curve: Curve, devices: int) -> float:
    """Return how far beyond its last point a curve is continued: 1 is twice as many devices."""
    return math.log2(devices / curve[-1][0])


def compute_slopes(curve: Curve) -> list[float]:
    """Return the change of the logarithm of the efficiency per doubling, between every two neighbours."""
    logs = [(math.log2(devices), math.log(speed / devices)) for devices, speed in curve]
    return [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(logs)]


def compute_unit(curve: Curve, devices: int) -> float:
    """Return the unit of errors of the predicted logarithm: the steepest slope so far, for each doubling beyond."""
    return max(_LEAST_SLOPE, *map(abs, compute_slopes(curve))) * count_doublings(curve, devices)


# ---- its errors


@dataclass(frozen=True)
class Case:
    """A published point that was predicted from the smaller ones of its curve."""

    curve: PublishedCurve
    points: int  # that were given
    devices: int
    error: float  # logarithm of predicted / published
    unit: float

    @property
    def score(self) -> float:
        return self.error / self.unit


@cache
def collect_published_cases() -> tuple[Case, ...]:
    """Return a case for every published point that may be predicted.

    A continuation over the first host boundary is left out, because it is refused.
    """
    cases = []
    for curve in read_curves():
        points = [(point.devices, curve.compute_speedup(point)) for point in curve.points]
        per_host = curve.devices_per_host
        for count in range(LEAST_POINTS, len(points)):
            given, most = points[:count], points[count - 1][0]
            for devices, speed in points[count:]:
                crosses_first_host = per_host is not None and most <= per_host < devices
                if devices <= MOST_TIMES * most and not crosses_first_host:
                    error = math.log(continue_curve(given, devices) / speed)
                    cases.append(Case(curve, count, devices, error, compute_unit(given, devices)))
    return tuple(cases)


@cache
def estimate_published_errors() -> ErrorRange:
    return find_error_range(collect_published_cases())


def find_error_range(cases: Sequence[Case]) -> ErrorRange:
    """Return the range in which the score of one more such case would lie with 95 % confidence."""
    scores = sorted(case.score for case in cases)
    # If a new case is like the n others, its place among them is equally likely to be any of n + 1.
    outside = int((len(scores) + 1) * (1 - CONFIDENCE) / 2)
    assert outside >= 1, "there are too few cases to leave any out"
    return ErrorRange(scores[outside - 1], scores[-outside], len(scores))
