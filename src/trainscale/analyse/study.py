"""A scaling study of a run: its ladders by work, the knee of each, and what a training costs at every measured size.

A size that is asked for and was not measured is predicted where that is no guess; nothing else is extrapolated to other
device counts. The time of a training is computed from the speed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..spec.config import STRONG, WEAK, Config
from .cost import JOULES_PER_WATT_HOUR, compute_energy_per_sample
from .prediction.predict import Prediction, Refusal, count_devices_of_host, predict
from .series import Point, Series
from .statistics import Interval, mean_interval
from .throughput import is_measured, median_over

GOOD_EFFICIENCY = 0.7  # of the knee, unless another share is given
_SECONDS_PER_HOUR = 3600.0
_INDEPENDENT = "independent"


@dataclass(frozen=True)
class Training:
    """The training whose cost is computed."""

    epochs: int
    samples: int  # of an epoch

    @property
    def total(self) -> int:
        return self.epochs * self.samples


@dataclass(frozen=True)
class Cost:
    """What the training takes on one size. Hours are those of its steps alone; hosts count as whole nodes."""

    hours: Interval
    node_hours: Interval
    device_hours: Interval
    kilowatt_hours: Interval | None


@dataclass(frozen=True)
class StudyPoint:
    """``window_seconds`` is the median over repeats of the longest window of a trial. None without a result."""

    point: Point
    window_seconds: float | None
    joules_per_sample: Interval | None
    cost: Cost | None


@dataclass(frozen=True)
class Knee:
    """The largest measured device count whose efficiency is at least the share that is asked for.

    ``devices`` is None if no point on several devices reaches it. ``is_largest``: no larger size was measured, so the
    knee may be beyond. ``is_uncertain``: the interval of that efficiency contains the share. ``below`` are smaller
    device counts that do not reach the share.
    """

    devices: int | None
    is_largest: bool = False
    is_uncertain: bool = False
    below: tuple[int, ...] = ()


@dataclass(frozen=True)
class PredictedSize:
    """What a size that was not measured would give. ``nodes`` are filled as those of the largest point are."""

    prediction: Prediction
    nodes: int
    cost: Cost | None


@dataclass(frozen=True)
class Ladder:
    """One series of the study. ``knee`` is None without a 1-device point.

    ``predicted`` is about the size that is asked for, or says why that would be a guess. None where it was measured.
    """

    series: Series
    points: tuple[StudyPoint, ...]
    knee: Knee | None
    predicted: PredictedSize | Refusal | None = None

    @property
    def scaling(self) -> str:
        return self.series.config.scaling

    def find_point(self, devices: int) -> StudyPoint | None:
        return next((point for point in self.points if point.point.devices == devices), None)


@dataclass(frozen=True)
class Study:
    """All ladders of the same work, weak before strong."""

    ladders: tuple[Ladder, ...]
    devices: int  # the size that is asked for
    efficiency: float  # of the knee
    training: Training | None
    energy_sources: tuple[str, ...]

    @property
    def config(self) -> Config:
        return self.ladders[0].series.config

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds of scaling that were not measured."""
        measured = {ladder.scaling for ladder in self.ladders}
        return tuple(scaling for scaling in (WEAK, STRONG) if scaling not in measured)


@dataclass(frozen=True)
class StudyQuestion:
    """What is asked of a study."""

    devices: int
    efficiency: float = GOOD_EFFICIENCY
    training: Training | None = None


def select_studied_records(run: RunInfo, records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials of the ladders: without the short ones of a search and those beside an explained ladder."""
    strategies = run.read_spec().strategies
    has_further = bool(strategies) and _INDEPENDENT not in strategies
    return [
        record
        for record in records
        if not record.trial.short and not (has_further and record.trial.config.strategy == _INDEPENDENT)
    ]


def select_studied_series(all_series: Iterable[Series]) -> list[Series]:
    """Return the series with results on several devices."""
    return [series for series in all_series if any(point.devices > 1 for point in series.good)]


def make_studies(
    all_series: Sequence[Series], records: Sequence[TrialRecord], question: StudyQuestion, is_sequential: bool = False
) -> list[Study]:
    """Return a study for every kind of work, in order of first appearance."""
    by_work: defaultdict[tuple[object, ...], list[Series]] = defaultdict(list)
    for series in select_studied_series(all_series):
        by_work[_make_work_key(series.config)].append(series)
    studies = []
    for group in by_work.values():
        ordered = sorted(group, key=lambda series: series.config.scaling == STRONG)
        configs = {series.config for series in group}
        own = [record for record in records if record.trial.config in configs and is_measured(record)]
        ladders = tuple(_make_ladder(series, own, question, is_sequential) for series in ordered)
        sources = {rank.energy_source for record in own for rank in record.ranks if rank.energy_source}
        studies.append(Study(ladders, question.devices, question.efficiency, question.training, tuple(sorted(sources))))
    return studies


def predict_size(study: Study, run: RunInfo) -> Study:
    """Return the study with predictions for the ladders in which the size that is asked for was not measured."""
    ladders = tuple(
        ladder if ladder.find_point(study.devices) else replace(ladder, predicted=_predict(ladder, study, run))
        for ladder in study.ladders
    )
    return replace(study, ladders=ladders)


def _predict(ladder: Ladder, study: Study, run: RunInfo) -> PredictedSize | Refusal:
    answer = predict(ladder.series, study.devices, count_devices_of_host(run, ladder.series.config))
    if isinstance(answer, Refusal):
        return answer
    largest = ladder.series.good[-1]
    nodes = math.ceil(study.devices * largest.hosts / largest.devices) if largest.hosts > 1 else 1
    speed = answer.samples_per_second
    return PredictedSize(answer, nodes, _compute_cost(speed, study.devices, nodes, study.training))


def find_knee(points: Sequence[Point], least: float) -> Knee | None:
    """Return the knee of a ladder by the mean efficiencies. None if there are no efficiencies."""
    known = [(point.devices, point.efficiency) for point in points if point.efficiency and point.devices > 1]
    if not known:
        return None
    reached = [(devices, efficiency) for devices, efficiency in known if efficiency.mean >= least]
    if not reached:
        return Knee(None)
    devices, efficiency = reached[-1]
    return Knee(
        devices,
        is_largest=devices == known[-1][0],
        is_uncertain=efficiency.low is not None and efficiency.low < least,
        below=tuple(other for other, share in known if other < devices and share.mean < least),
    )


def _make_ladder(
    series: Series, records: Sequence[TrialRecord], question: StudyQuestion, is_sequential: bool
) -> Ladder:
    points = []
    for point in series.points:
        of_point = [record for record in records if record.trial.point == (series.config, point.devices)]
        energies = [joules for record in of_point if (joules := compute_energy_per_sample(record)) is not None]
        # Repeats without energy would leave out a part of it.
        energy = mean_interval(energies, is_sequential) if energies and len(energies) == len(of_point) else None
        cost = _compute_cost(point.samples_per_second, point.devices, point.hosts, question.training, energy)
        windows = [max(rank.window_seconds for rank in record.ranks) for record in of_point]
        points.append(StudyPoint(point, median_over(windows), energy, cost))
    return Ladder(series, tuple(points), find_knee(series.good, question.efficiency))


def _compute_cost(
    speed: Interval | None, devices: int, nodes: int, training: Training | None, energy: Interval | None = None
) -> Cost | None:
    """Return what the training costs at a speed; ``energy`` is that of a sample."""
    if speed is None or training is None:
        return None
    hours = _divide(training.total / _SECONDS_PER_HOUR, speed)
    return Cost(
        hours,
        hours.scaled(nodes),
        hours.scaled(devices),
        energy.scaled(training.total / JOULES_PER_WATT_HOUR / 1000) if energy else None,
    )


def _divide(amount: float, speed: Interval) -> Interval:
    """Return an amount divided by a speed. An interval that reaches zero gives no interval."""
    if speed.low is None or speed.high is None or speed.low <= 0:
        return Interval(amount / speed.mean)
    return Interval(amount / speed.mean, amount / speed.high, amount / speed.low)


def _make_work_key(config: Config) -> tuple[object, ...]:
    """Return what the weak and the strong ladder of a study share."""
    return tuple(value for name, value in asdict(config).items() if name not in ("batch", "scaling"))
