"""Compares the efficiency of a point with the published points that are nearest to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from ...published.curve import PublishedCurve, PublishedPoint
from ...published.flags import is_impossible
from ..series import Interval, Point
from .own_work import CPU, OwnWork, Trait, is_same_network, list_traits

# A point is near if it differs by at most these factors. Device count and batch decide how much is exchanged for how
# much arithmetic; two networks are alike in that if both their operations and their parameters are.
_DEVICES, _BATCH, _NETWORK = 2.0, 4.0, 2.0

# If so many near points are of the same network on the same device, or of the same network, only those are compared.
_ENOUGH = 5

# How much each difference adds to the distance by which points are sorted. A factor of 2 in the device count adds 1.
_WEIGHTS = {
    "hardware": 1.0,
    "precision": 0.5,
    "strategy": 0.5,
    "framework": 0.25,
    "data": 0.25,
    "scaling": 2.0,
    "hosts": 1.0,
}
_FAR = 4.0  # for a network whose size is not known, or for a CPU beside a GPU
_UNKNOWN = 1.0  # for a batch that is not stated
_OTHER_PARALLELISM = "pipeline"  # a strategy that does not exchange gradients of the same network

BELOW, LOWEST, MIDDLE, HIGHEST, ABOVE = "below all", "lowest quarter", "middle half", "highest quarter", "above all"
NORMAL, LOW, HIGH = "normal", "low", "high"


@dataclass(frozen=True)
class Neighbour:
    """The point of a curve that is nearest in devices. ``too_far`` names what keeps it from being near."""

    curve: PublishedCurve
    point: PublishedPoint
    efficiency: float
    distance: float
    too_far: tuple[str, ...]
    traits: tuple[Trait, ...]

    @property
    def is_near(self) -> bool:
        return not self.too_far

    def agrees_in(self, *names: str) -> bool:
        return not {trait.name for trait in self.traits} & {*names}


@dataclass(frozen=True)
class NeighbourComparison:
    """Where an efficiency stands among the ``compared`` points, which are the most alike of those that are near.

    ``agree_in`` is what these have in common with it. ``places`` are those of the ends of its interval, lower first.
    """

    work: OwnWork
    point: Point
    efficiency: Interval
    neighbours: tuple[Neighbour, ...]  # all, the nearest first
    compared: tuple[Neighbour, ...]
    agree_in: tuple[str, ...]
    places: tuple[str, ...]
    verdict: str | None  # NORMAL, LOW or HIGH; None where nothing is near

    @property
    def sources(self) -> int:
        """How many sources the compared points have."""
        return len({neighbour.curve.source for neighbour in self.compared})

    @property
    def median(self) -> float:
        return median(neighbour.efficiency for neighbour in self.compared)


def compare_with_neighbours(work: OwnWork, point: Point, curves: Iterable[PublishedCurve]) -> NeighbourComparison:
    """Return where the efficiency of a point stands. The point has an efficiency and more than one device."""
    assert point.efficiency is not None
    neighbours = find_neighbours(work, point, curves)
    compared, agree_in = _select_most_alike([neighbour for neighbour in neighbours if neighbour.is_near])
    near = sorted(neighbour.efficiency for neighbour in compared)
    interval = point.efficiency
    ends = [interval.mean] if interval.low is None or interval.high is None else [interval.low, interval.high]
    places = tuple(dict.fromkeys(_place(end, near) for end in ends)) if near else ()
    verdict = _decide_verdict(ends, near)
    return NeighbourComparison(work, point, interval, tuple(neighbours), tuple(compared), agree_in, places, verdict)


def _select_most_alike(near: Sequence[Neighbour]) -> tuple[list[Neighbour], tuple[str, ...]]:
    """Return the near points that agree in the most, if there are enough of them, and in what they agree."""
    for names in (("network", "hardware"), ("network",)):
        alike = [neighbour for neighbour in near if neighbour.agrees_in(*names)]
        if len(alike) >= _ENOUGH:
            return alike, names
    return list(near), ()


def find_neighbours(work: OwnWork, point: Point, curves: Iterable[PublishedCurve]) -> list[Neighbour]:
    """Return a point of every curve that has a 1-device point, the nearest first."""
    neighbours = [_make_neighbour(work, point, curve) for curve in curves if curve.baseline.devices == 1]
    return sorted((each for each in neighbours if each), key=lambda each: (not each.is_near, each.distance))


def _make_neighbour(work: OwnWork, point: Point, curve: PublishedCurve) -> Neighbour | None:
    possible = [other for other in curve.points[1:] if not is_impossible(other, curve.baseline)]
    if not possible:
        return None
    nearest = min(possible, key=lambda other: _compute_octaves(other.devices, point.devices))
    traits = (*list_traits(work, curve, nearest.devices), *_compare_hosts(point, curve, nearest))
    batch = _compute_batch_octaves(point, curve, nearest)
    network = _compute_network_octaves(work, curve)
    is_other_kind = work.device == CPU
    limits = {
        "network": network > math.log2(_NETWORK),
        "hardware": is_other_kind,
        "hosts": any(trait.name == "hosts" for trait in traits),
        "strategy": curve.strategy == _OTHER_PARALLELISM,
        "scaling": work.config.scaling != curve.scaling,
        "batch": batch > math.log2(_BATCH),
        "devices": _compute_octaves(nearest.devices, point.devices) > math.log2(_DEVICES),
    }
    distance = _compute_octaves(nearest.devices, point.devices) + batch / 2 + network + (_FAR if is_other_kind else 0.0)
    distance += math.fsum(_WEIGHTS.get(trait.name, 0.0) for trait in traits)
    too_far = tuple(name for name, is_too_far in limits.items() if is_too_far)
    return Neighbour(curve, nearest, curve.compute_efficiency(nearest), distance, too_far, traits)


def _compare_hosts(point: Point, curve: PublishedCurve, other: PublishedPoint) -> tuple[Trait, ...]:
    """Return a trait if one of two points is on one host and the other on several."""
    hosts = curve.count_hosts(other)
    if hosts is None or (hosts > 1) == (point.hosts > 1):
        return ()
    return (Trait("hosts", str(point.hosts), str(hosts)),)


def _compute_network_octaves(work: OwnWork, curve: PublishedCurve) -> float:
    """Return how unlike two networks are: the larger factor, in operations or in parameters, as a power of 2."""
    network = curve.network
    if is_same_network(work, curve):
        return 0.0
    if not (work.macs and work.parameters and network.macs and network.parameters):
        return _FAR
    return max(_compute_octaves(work.macs, network.macs), _compute_octaves(work.parameters, network.parameters))


def _compute_batch_octaves(point: Point, curve: PublishedCurve, other: PublishedPoint) -> float:
    """Return the factor between the batches per device as a power of 2."""
    if other.batch_per_device is None or curve.unit != point.unit:
        return _UNKNOWN
    return _compute_octaves(other.batch_per_device, point.batch_per_device)


def _compute_octaves(first: float, second: float) -> float:
    return abs(math.log2(first / second)) if first and second else 0.0


def _place(value: float, ordered: Sequence[float]) -> str:
    """Return where a value stands among others. With fewer than four there are no quarters."""
    if value < ordered[0]:
        return BELOW
    if value > ordered[-1]:
        return ABOVE
    low, high = _find_middle(ordered)
    return LOWEST if value < low else HIGHEST if value > high else MIDDLE


def _find_middle(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the limits of the middle half."""
    if len(ordered) < 4:
        return ordered[0], ordered[-1]
    quarters = quantiles(ordered, n=4, method="inclusive")
    return quarters[0], quarters[2]


def _decide_verdict(ends: Sequence[float], near: Sequence[float]) -> str | None:
    """Return normal if any part of the interval lies in the middle half."""
    if not near:
        return None
    low, high = _find_middle(near)
    return LOW if ends[-1] < low else HIGH if ends[0] > high else NORMAL
