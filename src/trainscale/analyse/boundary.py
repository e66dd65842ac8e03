"""Where a ladder leaves its first host: from there on, part of what is exchanged goes over a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .series import Point, Series


@dataclass(frozen=True)
class HostBoundary:
    """Device counts on both sides of it, and how many hosts the points beyond it are on."""

    last_on_one_host: int
    first_on_several: int
    fewest_hosts: int
    most_hosts: int


def host_boundary(points: Iterable[Point]) -> HostBoundary | None:
    """None where all points are on one host, or none is, or where no device count separates the two."""
    found = list(points)
    one = [point.devices for point in found if point.hosts == 1]
    several = [point.devices for point in found if point.hosts > 1]
    if not one or not several or max(one) >= min(several):
        return None
    hosts = [point.hosts for point in found if point.hosts > 1]
    return HostBoundary(max(one), min(several), min(hosts), max(hosts))


def common_boundary(all_series: Iterable[Series]) -> HostBoundary | None:
    """Of all series that leave their first host somewhere. Those that are on several from their first point on
    (servers on hosts of their own) have no part in it.
    """
    return host_boundary(point for series in all_series if host_boundary(series.points) for point in series.points)
