"""Where the efficiency of a run stands among published points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import TYPE_CHECKING

from ...analyse.series import Point, Series
from ...analyse.titles import find_model_title
from ...errors import InputError
from ...record.run import RunInfo
from ...report import numbers
from ...report.documents import encode_json, join_lines, load_template, pick
from ...spec.config import Config
from ...worker import models
from .curves import PublishedCurve, PublishedPoint, find_device_kind, read_curves

if TYPE_CHECKING:
    from ...runs import Run

CPU = "CPU"
_ROUNDING = 0.01  # counts of multiply-adds that differ by less are those of one network

# A near point differs at most by these factors.
_DEVICES, _BATCH, _NETWORK = 2.0, 4.0, 2.0

# With so many near points of the same network (on the same device), only those count.
_ENOUGH = 5

# What a difference adds to the distance of a point: twice the devices add 1.
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

# Schema history of the JSON
#     1  first version
LIKE_SCHEMA = 1
_MOST_SHOWN = 12
_FEW = 3  # fewer near points than this are weak evidence
_TOO_FAR = {
    "network": "network",
    "hardware": "hardware (no published point is of CPUs)",
    "scaling": "scaling (weak or strong)",
    "hosts": "hosts (one or several)",
    "strategy": "strategy",
    "batch": "batch (by more than a factor of 4)",
    "devices": "device count (by more than a factor of 2)",
}


# ---- in what a curve differs from a series


@dataclass(frozen=True)
class OwnWork:
    """What a series did; ``device`` is a kind such as A100."""

    title: str
    config: Config
    parameters: int | None = None
    device: str = ""

    @cached_property
    def network(self) -> str:
        info = models.resolve(self.config.model.rpartition(":")[2])  # torchvision:resnet50 is ResNet-50 too
        return info.name if info else ""

    @cached_property
    def macs(self) -> int | None:
        if not self.network:
            return None
        try:
            return models.build(self.network, self.config.image_size, self.config.classes).macs
        except models.ShapeError:
            return None


@dataclass(frozen=True)
class Trait:
    """In what a curve differs from a series."""

    name: str
    own: str
    published: str


def describe_work(series: Series, run: RunInfo) -> OwnWork:
    kinds = {find_device_kind(name) for machine in run.read_provenance().machines for name in machine.gpus}
    device = CPU if series.config.device == "cpu" else " and ".join(sorted(kinds)) or "GPU"
    return OwnWork(series.title, series.config, series.parameters, device)


def is_same_network(own: OwnWork, curve: PublishedCurve) -> bool:
    """Images of another size are other work."""
    network = curve.network
    is_named = own.network == network.name
    if own.macs is None or network.macs is None:
        has_same_macs = own.macs is None or is_named
    else:
        has_same_macs = abs(own.macs - network.macs) <= _ROUNDING * max(own.macs, network.macs)
    return has_same_macs and (is_named or bool(own.parameters and own.parameters == network.parameters))


def list_traits(own: OwnWork, curve: PublishedCurve, devices: int | None = None) -> tuple[Trait, ...]:
    """Return what differs from a curve at its point of ``devices``."""
    config = own.config
    point = next((point for point in curve.points if point.devices == devices), curve.baseline)
    batch, scope = point.batch_per_device, "per device"
    if curve.scaling == "strong":
        batch, scope = point.global_batch, "over all devices"
    network = "" if is_same_network(own, curve) else curve.network_stated
    stated_batch = f"{batch:g}" if batch and config.scaling == curve.scaling else ""
    pairs = (
        ("network", find_model_title(config.model), network),
        ("hardware", own.device, "" if own.device == curve.device else curve.hardware),
        ("scaling", config.scaling, curve.scaling or ""),
        ("batch " + scope, str(config.batch), stated_batch),
        ("precision", config.precision, curve.precision),
        ("framework", config.framework, curve.framework),
        ("strategy", config.strategy, curve.strategy),
        ("data", "synthetic" if config.data == "synthetic" else "real", curve.data),
    )
    return tuple(Trait(name, ours, theirs) for name, ours, theirs in pairs if theirs and ours != theirs)


# ---- the nearest points, and the place among them


@dataclass(frozen=True)
class Neighbour:
    """The nearest point of a curve. ``too_far``: what keeps it from being near."""

    curve: PublishedCurve
    point: PublishedPoint
    efficiency: float
    distance: float
    too_far: tuple[str, ...]
    traits: tuple[Trait, ...]

    def agrees_in(self, *names: str) -> bool:
        return not {trait.name for trait in self.traits} & {*names}


@dataclass(frozen=True)
class NeighbourComparison:
    """Where an efficiency stands among the ``compared`` points."""

    work: OwnWork
    point: Point
    neighbours: tuple[Neighbour, ...]  # all, the nearest first
    compared: tuple[Neighbour, ...]
    agree_in: tuple[str, ...]
    places: tuple[str, ...]
    verdict: str | None  # NORMAL, LOW or HIGH; None where nothing is near

    @property
    def sources(self) -> int:
        return len({neighbour.curve.source for neighbour in self.compared})

    @property
    def efficiencies(self) -> list[float]:
        return sorted(neighbour.efficiency for neighbour in self.compared)


def place_run(run: Run, devices: int | None = None, title: str | None = None) -> list[NeighbourComparison]:
    largest = {
        series.title: (series, point)  # the last point of a series is its largest
        for series in run.select(lambda record: not record.trial.short).series
        if series.config.strategy != "independent" and (title or "").casefold() in series.title.casefold()
        for point in series.good
        if point.efficiency and point.devices > 1 and devices in (None, point.devices)
    }
    if not largest:
        raise InputError(
            f"{run.directory}: there is no efficiency to place: it needs a 1-device point and a larger one"
            f"{'' if devices is None else f', here of {devices} devices'}"
            f"{'' if title is None else f', in a series that has {title!r} in its title'}"
        )
    return [
        compare_with_neighbours(describe_work(series, run.info), point, read_curves())
        for series, point in largest.values()
    ]


def compare_with_neighbours(work: OwnWork, point: Point, curves: Iterable[PublishedCurve]) -> NeighbourComparison:
    """Return where an efficiency on several devices stands: normal if its interval reaches the middle half.

    One point of every curve with a 1-device point may be near. Those that agree in the most are compared, if enough.
    """
    assert point.efficiency is not None
    made = [_make_neighbour(work, point, curve) for curve in curves if curve.baseline.devices == 1]
    neighbours = list(filter(None, made))
    neighbours.sort(key=lambda each: (bool(each.too_far), each.distance))
    compared = [neighbour for neighbour in neighbours if not neighbour.too_far]
    agree_in: tuple[str, ...] = ()
    for names in (("network", "hardware"), ("network",)):
        alike = [neighbour for neighbour in compared if neighbour.agrees_in(*names)]
        if len(alike) >= _ENOUGH:
            compared, agree_in = alike, names
            break
    places: tuple[str, ...] = ()
    verdict = None
    if compared:
        near = sorted(neighbour.efficiency for neighbour in compared)
        low, high = near[0], near[-1]  # of the middle half
        if len(near) >= 4:  # with fewer there are no quarters
            low, _, high = quantiles(near, n=4, method="inclusive")

        def place(value: float) -> str:
            if not near[0] <= value <= near[-1]:
                return BELOW if value < near[0] else ABOVE
            return LOWEST if value < low else HIGHEST if value > high else MIDDLE

        first, last = point.efficiency.low, point.efficiency.high
        if first is None or last is None:
            first = last = point.efficiency.mean
        places = tuple(dict.fromkeys(map(place, (first, last))))
        verdict = LOW if last < low else HIGH if first > high else NORMAL
    return NeighbourComparison(work, point, tuple(neighbours), tuple(compared), agree_in, places, verdict)


def _make_neighbour(work: OwnWork, point: Point, curve: PublishedCurve) -> Neighbour | None:
    def count_octaves(first: float | None, second: float | None) -> float:
        return abs(math.log2(first / second)) if first and second else 0.0

    possible = [other for other in curve.points[1:] if not curve.is_impossible(other)]
    if not possible:
        return None
    nearest = min(possible, key=lambda other: count_octaves(other.devices, point.devices))
    traits, hosts = list_traits(work, curve, nearest.devices), curve.count_hosts(nearest)
    if hosts is not None and (hosts > 1) != (point.hosts > 1):
        traits = (*traits, Trait("hosts", str(point.hosts), str(hosts)))
    devices = count_octaves(nearest.devices, point.devices)
    batch = count_octaves(nearest.batch_per_device, point.batch_per_device)
    if nearest.batch_per_device is None or curve.unit != point.unit:
        batch = _UNKNOWN
    network, other = 0.0, curve.network
    if not is_same_network(work, curve):  # the larger factor, in operations or in parameters
        is_known = work.macs and work.parameters and other.macs and other.parameters
        factors = count_octaves(work.macs, other.macs), count_octaves(work.parameters, other.parameters)
        network = max(factors) if is_known else _FAR
    is_other_kind = work.device == CPU
    limits = {
        "network": network > math.log2(_NETWORK),
        "hardware": is_other_kind,
        "hosts": any(trait.name == "hosts" for trait in traits),
        "strategy": curve.strategy == _OTHER_PARALLELISM,
        "scaling": work.config.scaling != curve.scaling,
        "batch": batch > math.log2(_BATCH),
        "devices": devices > math.log2(_DEVICES),
    }
    distance = devices + batch / 2 + network + (_FAR if is_other_kind else 0.0)
    distance += math.fsum(_WEIGHTS.get(trait.name, 0.0) for trait in traits)
    too_far = tuple(name for name, is_too_far in limits.items() if is_too_far)
    return Neighbour(curve, nearest, curve.compute_efficiency(nearest), distance, too_far, traits)


# ---- in words


def describe_comparison(comparison: NeighbourComparison) -> str:
    template = load_template(__package__, "place.j2", (("explain", _TOO_FAR.__getitem__),))
    is_same = all(neighbour.agrees_in("network") for neighbour in comparison.compared)
    text = template.render(comparison=comparison, few=_FEW, median=median, is_same_network=is_same)
    return join_lines(text)


def list_neighbours(comparison: NeighbourComparison) -> list[tuple[str, str]]:
    lines = []
    for neighbour in comparison.compared[:_MOST_SHOWN] or comparison.neighbours[:_FEW]:
        traits = "; ".join(f"{trait.name}: {trait.published}" for trait in neighbour.traits)
        share, devices = f"{neighbour.efficiency * 100:6.1f}{numbers.THIN}%", neighbour.point.devices
        difference = f"differs in {traits}" if traits else "differs in nothing that its source states"
        lines.append((f"{share} at {devices:>4}  {neighbour.curve.id}", difference))
    return lines


def make_heading(comparison: NeighbourComparison) -> str:
    if not comparison.compared:
        return "The nearest published points, none of them near: efficiency, devices, ID"
    hidden = len(comparison.compared) - _MOST_SHOWN
    more = f" ({hidden} more: --json has all)" if hidden > 0 else ""
    return f"The nearest published points: efficiency, devices, ID{more}"


def render_like_json(comparisons: Sequence[NeighbourComparison]) -> str:
    all_series = []
    for comparison in comparisons:
        compared = comparison.compared
        points = [
            {
                **pick(neighbour, "efficiency distance too_far"),
                "id": neighbour.curve.id,
                "devices": neighbour.point.devices,
                "differences": neighbour.traits,
            }
            for neighbour in compared or comparison.neighbours
        ]
        all_series.append(
            {
                **pick(comparison.point, "devices efficiency"),
                **pick(comparison, "verdict places agree_in sources"),
                "title": comparison.work.title,
                "sentence": describe_comparison(comparison),
                "near": len(compared),
                "median": median(comparison.efficiencies) if compared else None,
                "points": points,
            }
        )
    return encode_json({"schema": LIKE_SCHEMA, "series": all_series})
