"""Continues the ladder of a series to more devices, with an interval and a test on its own largest point, or says why
that would be a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analyse.series import Point, Series
from ...analyse.statistics import Interval
from ...errors import InputError
from ...record.run import RunInfo
from ...spec.config import Config
from .law import (
    LEAST_POINTS,
    MOST_TIMES,
    Curve,
    ErrorRange,
    compute_unit,
    continue_curve,
    count_doublings,
    estimate_published_errors,
)

if TYPE_CHECKING:
    from ...runs import Run

_WIDEST = 4.0  # times the lower end of an interval: a wider one is no answer


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
