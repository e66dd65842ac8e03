"""Sides of a comparison, made of speeds by device count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainscale.analyse.comparison.sides import Side, SidePoint
from trainscale.analyse.estimates import make_estimate
from trainscale.analyse.statistics import mean_interval
from trainscale.record.witness import PROVEN
from trainscale.spec.config import Config

CONFIG = Config("torch", "alexnet", 32, "allreduce", 224, 1000)
NEAR = (0.998, 0.999, 1.0, 1.001, 1.002)  # five repeats with a CV of 0.16 %


def make_point(devices: int, speeds: Sequence[float], is_sequential: bool = False, **changes: Any) -> SidePoint:
    speed = make_estimate(mean_interval(speeds, is_sequential), len(speeds), is_sequential) if speeds else None
    point = SidePoint(devices, 1, speed, "ok" if speeds else "oom", "" if speeds else "too large", PROVEN)
    return replace(point, **changes)


def make_side(speeds: Mapping[int, Sequence[float]], is_sequential: bool = False, **changes: Any) -> Side:
    """A side with all that is compared recorded. Without speeds, a point has failed."""
    side = Side(
        source="runs/a",
        title="AlexNet · torch · allreduce",
        config=CONFIG,
        unit="images",
        points={devices: make_point(devices, values, is_sequential) for devices, values in speeds.items()},
        versions={"torch": "2.9.1", "python": "3.11.9"},
        machine={"CPU": "A CPU", "cores": "8"},
        measurement={"warmup": "10", "steps": "100"},
    )
    return replace(side, **changes)


def scaled(factor: float, values: Sequence[float] = NEAR) -> list[float]:
    return [factor * value for value in values]
