"""Continues the ladder of a series to more devices, with an interval and a test on its own largest point, or says why
that would be a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...record.run import RecordedMachine, RunInfo
from ...spec.config import Config
from ..series import Point, Series
from ..statistics import Interval
from .calibration import MOST_TIMES, ErrorRange, estimate_published_errors
from .law import LEAST_POINTS, Curve, compute_unit, continue_curve, count_doublings

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


def count_devices_of_host(run: RunInfo, config: Config) -> int | None:
    """Return how many devices the smallest host of a run has for this config. None where the run did not record it."""
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    counts = [_count_devices(machine, config) for machine in machines]
    known = [count for count in counts if count is not None]
    return min(known) if known else None


def _count_devices(machine: RecordedMachine, config: Config) -> int | None:
    if config.device == "cuda":
        return len(machine.gpus) * max(1, config.ranks_per_gpu)
    return machine.cores // max(1, config.cores_per_device) if machine.cores else None


def predict(series: Series, devices: int, host_devices: int | None) -> Prediction | Refusal:
    """Return what a series would reach on so many devices. ``host_devices`` is how many one host has, if known."""
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
    efficiency = speed.scaled(1 / (baseline.mean * devices)) if baseline else None
    given = tuple(point.devices for point in points)
    return Prediction(devices, speed, efficiency, given, estimate_published_errors(), _hold_out(points))


def _refuse(points: Sequence[Point], devices: int, host_devices: int | None) -> Refusal | None:
    counts = [point.devices for point in points]
    if devices in counts:
        return Refusal(devices, "it was measured, so there is nothing to predict")
    if len(counts) < LEAST_POINTS:
        reason = f"a trend needs results on {LEAST_POINTS} device counts, and this series has {len(counts)}"
        return Refusal(devices, reason, _list_smaller(counts, devices))
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


def _list_smaller(counts: Sequence[int], devices: int) -> tuple[int, ...]:
    """Return device counts below that one which would make a ladder long enough: 1, 2, 4 and so on."""
    powers = [2**power for power in range(devices.bit_length()) if 2**power < devices]
    return tuple(power for power in powers if power not in counts)[: LEAST_POINTS - len(counts)]


def _continue(points: Sequence[Point], devices: int) -> Interval:
    curve: Curve = [(point.devices, point.samples_per_second.mean) for point in points if point.samples_per_second]
    speed, unit, errors = continue_curve(curve, devices), compute_unit(curve, devices), estimate_published_errors()
    noise = _estimate_noise(points, count_doublings(curve, devices))
    # A score above zero is a prediction that was too high, so the upper end of the scores is the lower end here.
    below = math.hypot(max(0.0, errors.high) * unit, noise)
    above = math.hypot(max(0.0, -errors.low) * unit, noise)
    return Interval(speed, speed * math.exp(-below), speed * math.exp(above))


def _estimate_noise(points: Sequence[Point], distance: float) -> float:
    """Return how uncertain the logarithm is because the last two points are: the trend between them is continued."""
    widths = [(point.samples_per_second.relative or 0.0) if point.samples_per_second else 0.0 for point in points[-2:]]
    steps = distance / math.log2(points[-1].devices / points[-2].devices)
    return math.hypot(widths[1] * (1 + steps), widths[0] * steps)


def _hold_out(points: Sequence[Point]) -> HeldOut | None:
    *others, largest = points
    assert largest.samples_per_second is not None
    crosses = largest.hosts > 1 and others[-1].hosts == 1
    if len(others) < LEAST_POINTS or crosses or largest.devices > MOST_TIMES * others[-1].devices:
        return None
    return HeldOut(largest.devices, _continue(others, largest.devices), largest.samples_per_second.mean)
