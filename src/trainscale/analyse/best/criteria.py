"""What "best" can mean: the value of a measured point by each criterion, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...record.trial import RankSample, TrialRecord
from ..cost import MILLION, Price
from ..learning import compute_training_seconds, count_epochs_to
from ..throughput import compute_samples_per_second, is_measured
from .points import MeasuredPoint
from .quantity import Quantity, estimate_mean, estimate_ratio

SPEED, EFFICIENCY, TIME, MEMORY, COST = "images/s", "efficiency", "time-to-accuracy", "memory", "cost"

# The counts of a rank's memory, the most exact first.
_MEMORY_COUNTS = ("nvml_peak_bytes", "device_peak_bytes", "host_peak_bytes")


@dataclass(frozen=True)
class Question:
    """By what to choose. ``accuracy`` replaces the accuracy to which the runs were to train."""

    by: str = SPEED
    price: Price | None = None
    accuracy: float | None = None

    @property
    def more_is_better(self) -> bool:
        return self.by in (SPEED, EFFICIENCY)


def estimate_point(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    """Return the value of a point that has a good trial, or the reason why it has none."""
    return _CRITERIA[question.by](point, question, memory_count)


def choose_memory_count(points: Sequence[MeasuredPoint]) -> str:
    """Return the most exact count of memory that all points have; without one, that of the host."""
    return next(
        (name for name in _MEMORY_COUNTS if all(_list_peaks(point, name) for point in points)), _MEMORY_COUNTS[-1]
    )


def estimate_speed(point: MeasuredPoint) -> Quantity:
    return estimate_mean(point.speeds, point.is_sequential)


def estimate_cost(point: MeasuredPoint, price: Price) -> Quantity:
    """Return the cost of a million samples."""
    return estimate_speed(point).inverted().scaled(price.compute_price_per_second(point.devices, point.hosts) * MILLION)


def _estimate_by_speed(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    return estimate_speed(point)


def _estimate_by_efficiency(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    if point.devices == 1:
        return "the efficiency of one device is 1 by definition"
    baseline = [compute_samples_per_second(record) for record in point.baseline if is_measured(record)]
    if not baseline:
        return "its point on one device was not measured, so it has no efficiency"
    ratio = estimate_ratio(estimate_speed(point), estimate_mean(baseline, point.is_sequential))
    return ratio.scaled(1 / point.devices)


def _estimate_by_time(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    trained = [record for record in point.good if record.epochs]
    if not trained:
        return "it was not trained to an accuracy"
    target = point.config.until_accuracy if question.accuracy is None else question.accuracy
    if target is None:
        return "no accuracy is given; --until-accuracy names one"
    counts = [count_epochs_to(record, target) for record in trained]
    reached = [count for count in counts if count is not None]
    if len(reached) < len(trained):
        return f"{len(reached)} of {len(trained)} repeats reached an accuracy of {target:g}"
    times = [compute_training_seconds(record, count) for record, count in zip(trained, counts, strict=True)]
    return estimate_mean(times, point.is_sequential)


def _estimate_by_memory(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    peaks = _list_peaks(point, memory_count)
    return estimate_mean(peaks, point.is_sequential) if peaks else "its memory was not recorded"


def _estimate_by_cost(point: MeasuredPoint, question: Question, memory_count: str) -> Quantity | str:
    assert question.price is not None
    return estimate_cost(point, question.price)


def _list_peaks(point: MeasuredPoint, name: str) -> list[float]:
    """Return for each good trial the largest peak of a rank, or nothing where a trial has none."""
    peaks = [_find_largest_peak(record, lambda rank: getattr(rank, name)) for record in point.good]
    return [float(peak) for peak in peaks if peak] if all(peaks) else []


def _find_largest_peak(record: TrialRecord, peak: Callable[[RankSample], int | None]) -> int | None:
    return max((size for rank in record.ranks if (size := peak(rank)) is not None), default=None)


_CRITERIA: dict[str, Callable[[MeasuredPoint, Question, str], Quantity | str]] = {
    SPEED: _estimate_by_speed,
    EFFICIENCY: _estimate_by_efficiency,
    TIME: _estimate_by_time,
    MEMORY: _estimate_by_memory,
    COST: _estimate_by_cost,
}
CRITERIA = tuple(_CRITERIA)
