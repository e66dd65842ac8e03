"""A scaling study of a run: its ladders, their knees, and what a training costs at every size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...analyse.series import Point, Series
from ...analyse.statistics import Interval
from ...analyse.throughput import JOULES_PER_WATT_HOUR, average_energy_per_sample, is_measured, median_over
from ...errors import InputError
from ...record.run import RunInfo
from ...spec.config import STRONG, WEAK, Config
from ..commands import change_command
from ..predict import Prediction, Refusal, count_devices_of_host, predict_series, select_ladders

if TYPE_CHECKING:
    from ...runs import Run

FORMATS = ("text", "markdown", "latex", "json")
GOOD_EFFICIENCY = 0.7  # of the knee, unless another share is given
_SECONDS_PER_HOUR = 3600.0
# Flags of the run's command that a study sets itself.
_REPLACED = {"--scaling", "--devices", "-x", "--max-devices", "-o", "--output", "--repeats", "--budget", "--study"}
_REPLACED |= {"--until-interval", "--until-accuracy", "--epochs", "--fresh", "--retry-failed", "--json", "--quiet"}


@dataclass(frozen=True)
class Training:
    epochs: int
    samples: int  # of an epoch

    @property
    def total(self) -> int:
        return self.epochs * self.samples


@dataclass(frozen=True)
class Cost:
    """What the training takes; hosts count as whole nodes."""

    hours: Interval
    node_hours: Interval
    device_hours: Interval
    kilowatt_hours: Interval | None


@dataclass(frozen=True)
class Knee:
    """The largest measured device count with at least the given efficiency."""

    devices: int | None  # None if none on several devices has it
    is_largest: bool = False  # no larger size was measured
    is_uncertain: bool = False  # the interval of its efficiency contains the share
    below: tuple[int, ...] = ()  # smaller device counts that do not reach it


@dataclass(frozen=True)
class PredictedSize:
    prediction: Prediction
    nodes: int  # filled as at the largest point
    cost: Cost | None


@dataclass(frozen=True)
class Ladder:
    series: Series
    knee: Knee | None  # None without a 1-device point
    predicted: PredictedSize | Refusal | None  # of the size that is asked for; None where it was measured

    @property
    def scaling(self) -> str:
        return self.series.config.scaling

    @property
    def name(self) -> str:
        return f"{self.scaling.capitalize()} scaling"

    @property
    def heading(self) -> str:
        scope = "per device" if self.scaling == WEAK else "over all devices"
        return f"{self.name}: batch {self.series.config.batch:,} {scope}"

    def find_point(self, devices: int) -> Point | None:
        return next((point for point in self.series.points if point.devices == devices), None)


@dataclass(frozen=True)
class Study:
    info: RunInfo
    ladders: tuple[Ladder, ...]
    devices: int  # the size that is asked for
    efficiency: float  # of the knee
    training: Training | None

    @property
    def config(self) -> Config:
        return self.ladders[0].series.config

    @property
    def unit(self) -> str:
        return self.ladders[0].series.unit

    @property
    def missing(self) -> tuple[str, ...]:
        measured = {ladder.scaling for ladder in self.ladders}
        return tuple(scaling for scaling in (WEAK, STRONG) if scaling not in measured)

    @property
    def energy_sources(self) -> tuple[str, ...]:
        points = [point for ladder in self.ladders for point in ladder.series.points]
        records = [record for point in points for record in point.records if is_measured(record)]
        sources = {rank.energy_source for record in records for rank in record.ranks}
        return tuple(sorted(filter(None, sources)))

    def measure_energy(self, point: Point) -> Interval | None:
        """Return the joules of a sample. None if a repeat has none."""
        return average_energy_per_sample(point.records, self.info.is_sequential)

    def compute_cost(self, point: Point) -> Cost | None:
        """Return what the training costs on a measured size."""
        speed, energy = point.samples_per_second, self.measure_energy(point)
        return _compute_cost(self.training, speed, point.devices, point.hosts, energy)


def make_studies(
    run: Run,
    devices: int | None = None,
    efficiency: float = GOOD_EFFICIENCY,
    training: Training | None = None,
) -> list[Study]:
    """Return a study for every kind of work."""
    by_work: defaultdict[tuple[object, ...], list[Series]] = defaultdict(list)
    for series in select_ladders(run).series:
        if any(point.devices > 1 for point in series.good):
            # What the weak and the strong ladder of a study share.
            work = {**asdict(series.config), "batch": None, "scaling": None}
            by_work[tuple(work.values())].append(series)
    if not by_work:
        advice = f"this command measures it:\n  {make_measuring_command(run.info)}"
        raise InputError(f"{run.directory}: no result on several devices; {advice}")
    if devices is None:
        devices = max(series.good[-1].devices for group in by_work.values() for series in group)
    studies = []
    for group in by_work.values():
        ladders = []
        for series in sorted(group, key=lambda series: series.config.scaling == STRONG):
            predicted: PredictedSize | Refusal | None = None
            if all(point.devices != devices for point in series.points):
                answer = predict_series(series, devices, count_devices_of_host(run.info, series.config))
                predicted = answer if isinstance(answer, Refusal) else None
                if isinstance(answer, Prediction):
                    largest = series.good[-1]
                    nodes = math.ceil(devices * largest.hosts / largest.devices) if largest.hosts > 1 else 1
                    cost = _compute_cost(training, answer.samples_per_second, devices, nodes, None)
                    predicted = PredictedSize(answer, nodes, cost)
            ladders.append(Ladder(series, find_knee(series.good, efficiency), predicted))
        studies.append(Study(run.info, tuple(ladders), devices, efficiency, training))
    ladders = [ladder for study in studies for ladder in study.ladders]
    reasons = [ladder.predicted.reason for ladder in ladders if isinstance(ladder.predicted, Refusal)]
    if len(reasons) == len(ladders):
        measured = sorted({point.devices for ladder in ladders for point in ladder.series.points})
        raise InputError(
            f"--devices {devices}: not measured, and a prediction would be a guess:"
            f" {'; '.join(dict.fromkeys(reasons))}; measured: {', '.join(map(str, measured))};"
            f" this command measures it:\n  {make_measuring_command(run.info, [*measured, devices])}"
        )
    return studies


def find_knee(points: Sequence[Point], least: float) -> Knee | None:
    """Return the knee of a ladder; None if there are no efficiencies."""
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


def find_window_seconds(point: Point) -> float | None:
    measured = [record for record in point.records if is_measured(record)]
    return median_over([max(rank.window_seconds for rank in record.ranks) for record in measured])


def make_measuring_command(run: RunInfo, devices: Sequence[int] = ()) -> str:
    """Return the command that measures both ladders."""
    ladder = ["--devices", ",".join(map(str, sorted(devices)))] if devices else []
    return change_command(run, _REPLACED, "--study", *ladder)


def _compute_cost(
    training: Training | None, speed: Interval | None, devices: int, nodes: int, energy: Interval | None
) -> Cost | None:
    if speed is None or training is None:
        return None
    amount = training.total / _SECONDS_PER_HOUR
    hours = Interval(amount / speed.mean)
    if speed.low is not None and speed.high is not None and speed.low > 0:
        hours = Interval(amount / speed.mean, amount / speed.high, amount / speed.low)
    return Cost(
        hours,
        hours.scaled(nodes),
        hours.scaled(devices),
        energy.scaled(training.total / JOULES_PER_WATT_HOUR / 1000) if energy else None,
    )
