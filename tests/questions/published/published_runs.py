"""Runs beside which published curves are laid, and curves that are easy to reckon with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from factories import make_config, make_run, record_at

from trainscale.analyse.series import Series, build_series
from trainscale.questions.published.curves import PublishedCurve, PublishedPoint, find_curve
from trainscale.record.run import RunInfo

REPEATS = (0.998, 0.999, 1.0, 1.001, 1.002)
SPEEDS = {1: 900.0, 2: 1780.0, 8: 6300.0}
MODEL = find_curve("nvidia2021-resnet50-pytorch-a100-80gb-tf32")


def gpu_run(name: str = "NVIDIA A100-SXM4-80GB") -> RunInfo:
    return make_run(machine={"cpu": "A CPU", "cores": 64, "gpus": [name] * 8})


def make_series(speeds: Mapping[int, float] = SPEEDS, parameters: int = 25_557_032, **changes: Any) -> Series:
    """ResNet-50 as NVIDIA measured it on A100s, but on synthetic images."""
    values = {"model": "resnet50", "batch": 256, "device": "cuda", "precision": "tf32", **changes}
    config = make_config(**values)
    records = [
        record_at(speed * repeat, config, devices, index, parameters=parameters)
        for index, repeat in enumerate(REPEATS)
        for devices, speed in speeds.items()
    ]
    return build_series(records)[0]


def make_curve(
    efficiency: float, name: str = "a", devices: int = 8, batch: int = 256, **changes: Any
) -> PublishedCurve:
    """A curve of 1 and ``devices`` devices that is otherwise like the series."""
    points = (
        PublishedPoint(1, 1000.0, batch, batch),
        PublishedPoint(devices, 1000.0 * devices * efficiency, batch, batch * devices),
    )
    values = {"data": "synthetic", "stated_scaling": None, "flags": (), **changes}
    return replace(MODEL, id=name, points=points, **values)
