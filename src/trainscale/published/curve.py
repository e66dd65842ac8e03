"""A published curve and its points, as the source states them, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Where a curve was published. ``year`` is that of the figures, or of their publication."""

    citation: str
    url: str
    year: int


@dataclass(frozen=True)
class Network:
    """``name`` is that of trainscale's own network where there is one. ``macs`` are multiply-adds of a forward pass."""

    name: str
    title: str
    parameters: int | None = None
    macs: int | None = None


@dataclass(frozen=True)
class PublishedPoint:
    """``per_second`` counts the samples of the whole cluster. It is None where the source states only an efficiency.

    ``stated`` is the source's own figure where that is no speed, such as the time of an epoch.
    """

    devices: int
    per_second: float | None
    batch_per_device: float | None = None  # of one update, in the unit of the curve; None where it is not stated
    global_batch: int | None = None
    efficiency: float | None = None
    stated: str = ""
    note: str = ""


@dataclass(frozen=True)
class PublishedCurve:
    """One network on one system, at two or more device counts.

    A name that ends in ``_stated`` is in the words of the source; the name without it is one of trainscale's, such as
    ``torch`` or ``fp16``. What the source does not state is None or empty. ``scaling`` follows from the batches of the
    points: ``weak``, ``strong``, ``mixed``, or None where they are not stated. ``flags`` are names of flags.py.
    """

    id: str
    source: Source
    network: Network
    network_stated: str
    framework: str
    framework_stated: str
    strategy: str
    strategy_stated: str
    device: str | None
    hardware: str
    devices_per_host: int | None
    interconnect: str
    precision: str
    precision_stated: str
    data: str
    unit: str
    stated_scaling: str | None
    scaling: str | None
    flags: tuple[str, ...]
    points: tuple[PublishedPoint, ...]
    note: str = ""

    @property
    def baseline(self) -> PublishedPoint:
        """The smallest point, to which speed-up and efficiency refer."""
        return self.points[0]

    @property
    def most_devices(self) -> int:
        return self.points[-1].devices

    @property
    def has_speeds(self) -> bool:
        """Whether the source states speeds, and not only efficiencies."""
        return all(point.per_second is not None for point in self.points)

    @property
    def title(self) -> str:
        parts = (self.network.title, self.framework, self.device or self.hardware, f"published {self.source.year}")
        return " · ".join(parts)

    def compute_efficiency(self, point: PublishedPoint) -> float:
        """Return the speed of a device divided by that of a device at the baseline."""
        return compute_efficiency(point, self.baseline)

    def compute_speedup(self, point: PublishedPoint) -> float:
        """Return the speed divided by that of the baseline. Ideal is ``devices`` / devices of the baseline."""
        return self.compute_efficiency(point) * point.devices / self.baseline.devices

    def count_hosts(self, point: PublishedPoint) -> int | None:
        """Return on how many hosts the devices are if hosts are filled. None where that is not stated."""
        return math.ceil(point.devices / self.devices_per_host) if self.devices_per_host else None


def compute_efficiency(point: PublishedPoint, baseline: PublishedPoint) -> float:
    """Return the stated efficiency, or that of the speeds."""
    if point.efficiency is not None:
        return point.efficiency
    if point.per_second is None or baseline.per_second is None:
        raise ValueError(f"{point.devices} devices: neither a speed nor an efficiency")
    return (point.per_second / point.devices) / (baseline.per_second / baseline.devices)
