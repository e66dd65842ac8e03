"""Sides of a comparison, made of speeds by device count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainscale.analyse.series import Point
from trainscale.analyse.statistics import make_estimate, mean_interval
from trainscale.questions.compare.sides import Side
from trainscale.record.parity import PROVEN, WitnessVerdict
from trainscale.record.run import RecordedMachine
from trainscale.record.trial import Failure
from trainscale.spec.config import Config

CONFIG = Config("torch", "alexnet", 32, "allreduce", 224, 1000)
NEAR = (0.998, 0.999, 1.0, 1.001, 1.002)  # five repeats with a CV of 0.16 %


def make_point(devices: int, speeds: Sequence[float], is_sequential: bool = False, **changes: Any) -> Point:
    """A point; without speeds it has failed."""
    values: dict[str, Any] = {
        "samples_per_second": mean_interval(speeds, is_sequential) if speeds else None,
        "failures": () if speeds else (Failure("oom", "too large"),),
        "verdict": WitnessVerdict(PROVEN),
        "hosts": 1,
        **changes,
    }
    return Point(CONFIG, "AlexNet", devices, batch_per_device=32, global_batch=32, repeats=len(speeds), **values)


def make_side(speeds: Mapping[int, Sequence[float]], is_sequential: bool = False, **changes: Any) -> Side:
    """A side with all that is compared recorded, on a machine with 8 cores."""
    points = {devices: make_point(devices, values, is_sequential) for devices, values in speeds.items()}
    side = Side(
        source="runs/a",
        title="AlexNet · torch · allreduce",
        config=CONFIG,
        unit="images",
        points=points,
        values={
            devices: make_estimate(point.samples_per_second, point.repeats, is_sequential)
            if point.samples_per_second
            else None
            for devices, point in points.items()
        },
        versions={"torch": "2.9.1", "python": "3.11.9"},
        machine={"CPU": "A CPU", "cores": "8"},
        measurement={"warmup": "10", "steps": "100"},
        machines=(RecordedMachine(cores=8),),
    )
    return replace(side, **changes)


def scaled(factor: float, values: Sequence[float] = NEAR) -> list[float]:
    return [factor * value for value in values]
