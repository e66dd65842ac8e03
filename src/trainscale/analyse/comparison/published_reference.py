"""A published curve as the reference of a comparison. Its figures have no interval and are taken as exact.

The efficiency is compared by default, because it depends less on the speed of the devices than the speed itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...errors import InputError
from ...published.curve import PublishedCurve
from ...published.devices import find_device_kind
from ...published.flags import STRONG, WEAK
from ...published.table import PREFIX
from ...record.trial import OK
from ...spec.config import Config
from ...worker import models
from ..estimates import make_exact, quotient
from ..published.own_work import is_same_network, make_work
from .sides import EFFICIENCY, HOST_GPUS, SPEED, UNCHECKED, Side, SidePoint

_ACCELERATORS = {"Gaudi": "gaudi", "Ascend 910": "ascend"}  # every other published device is a CUDA GPU


def compare_with_published(curve: PublishedCurve, side: Side, quantity: str = EFFICIENCY) -> tuple[Side, Side]:
    """Return the curve as A and the series as B, at the device counts that both have.

    An InputError says that they have none in common, or that the source does not state what is to be compared.
    """
    counts = sorted({point.devices for point in curve.points} & side.points.keys())
    if quantity == SPEED:
        _check_speeds(curve, side)
    else:
        _check_baseline(curve, side)
        counts = [count for count in counts if count != curve.baseline.devices]
    if not counts:
        raise InputError(
            f"no device count was measured in both: {PREFIX}{curve.id} has"
            f" {_join_counts(p.devices for p in curve.points)}; {side.source} has {_join_counts(side.points)}"
        )
    a = replace(
        side,
        source=f"{PREFIX}{curve.id}",
        title=curve.title,
        config=_make_stated_config(curve, side.config),
        points={count: _make_published_point(curve, side, count, quantity) for count in counts},
        machine=_describe_machine(curve, side),
        quantity=quantity,
        citation=curve.source.citation,
        parity=UNCHECKED, date="", versions={}, measurement={}, host_names=(),
    )  # fmt: skip
    return a, replace(
        side, points={count: _make_own_point(curve, side, count, quantity) for count in counts}, quantity=quantity
    )


def _check_speeds(curve: PublishedCurve, side: Side) -> None:
    if not curve.has_speeds:
        raise InputError(f"{PREFIX}{curve.id}: the source states no speeds; valid: --by efficiency")
    if curve.unit != side.unit:
        raise InputError(f"{PREFIX}{curve.id} counts {curve.unit}, {side.source} {side.unit}; valid: --by efficiency")


def _check_baseline(curve: PublishedCurve, side: Side) -> None:
    devices = curve.baseline.devices
    point = side.points.get(devices)
    if point is None or point.speed is None:
        count = f"{devices} device{'' if devices == 1 else 's'}"
        raise InputError(
            f"{PREFIX}{curve.id}: its efficiency is relative to {count}, for which {side.source} has no result; measure"
            " it, or compare with --by speed"
        )


def _make_published_point(curve: PublishedCurve, side: Side, devices: int, quantity: str) -> SidePoint:
    point = next(point for point in curve.points if point.devices == devices)
    value = curve.compute_efficiency(point) if quantity == EFFICIENCY else (point.per_second or 0.0)
    own = side.points[devices]
    return replace(
        own, hosts=curve.count_hosts(point) or own.hosts, speed=make_exact(value), status=OK, reason="", disturbance=""
    )


def _make_own_point(curve: PublishedCurve, side: Side, devices: int, quantity: str) -> SidePoint:
    own, baseline = side.points[devices], side.points.get(curve.baseline.devices)
    if quantity == SPEED or own.speed is None or baseline is None or baseline.speed is None:
        return own
    return replace(
        own,
        speed=quotient(own.speed, baseline.speed, curve.baseline.devices / devices),
        disturbance=own.disturbance or baseline.disturbance,
        baseline_lost=side.estimate_lost_share(curve.baseline.devices),
    )


def _make_stated_config(curve: PublishedCurve, own: Config) -> Config:
    """Return the config that the source states. What it does not state is taken to be the same."""
    changes: dict[str, Any] = {"framework": curve.framework, "precision": curve.precision}
    if not is_same_network(make_work("", own, curve.unit), curve):
        info = models.resolve(curve.network.name)
        changes |= {"model": curve.network.name, "image_size": info.image_size if info else own.image_size}
    if curve.scaling == WEAK and curve.baseline.batch_per_device:
        changes |= {"batch": round(curve.baseline.batch_per_device), "scaling": WEAK}
    if curve.scaling == STRONG and curve.baseline.global_batch:
        changes |= {"batch": curve.baseline.global_batch, "scaling": STRONG}
    if curve.data == "synthetic" or own.data == "synthetic":
        changes["data"] = curve.data or own.data
    device = _ACCELERATORS.get(curve.device or "", "cuda")
    return replace(own, strategy=curve.strategy, device=device, **changes)


def _describe_machine(curve: PublishedCurve, side: Side) -> dict[str, str]:
    """Return the GPUs of a host as the source states them, or as the run wrote them where they are of the same kind."""
    own = side.machine.get(HOST_GPUS)
    if own is None or curve.device is None:
        return {}
    count, _, name = own.partition(" × ")
    is_same = find_device_kind(name) == curve.device and (
        curve.devices_per_host is None or count == str(curve.devices_per_host)
    )
    return {HOST_GPUS: own if is_same else f"{curve.devices_per_host or '?'} × {curve.hardware}"}


def _join_counts(counts: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(counts)))
