"""Where a ladder leaves its first host. Beyond that point, workers exchange data over a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .series import Point, Series


@dataclass(frozen=True)
class HostBoundary:
    """The device counts on both sides, and how many hosts the points beyond it use."""

    last_on_one_host: int
    first_on_several: int
    fewest_hosts: int
    most_hosts: int


def find_host_boundary(points: Iterable[Point]) -> HostBoundary | None:
    """Return where points leave their first host. None if no device count separates those on one host from those on
    several.
    """
    devices_and_hosts = [(point.devices, point.hosts) for point in points]
    on_one = [devices for devices, hosts in devices_and_hosts if hosts == 1]
    on_several = [devices for devices, hosts in devices_and_hosts if hosts > 1]
    if not on_one or not on_several or max(on_one) >= min(on_several):
        return None
    beyond = [hosts for _, hosts in devices_and_hosts if hosts > 1]
    return HostBoundary(max(on_one), min(on_several), min(beyond), max(beyond))


def find_common_boundary(all_series: Iterable[Series]) -> HostBoundary | None:
    """Return the boundary of all series that leave their first host somewhere.

    Series that are on several hosts from their first point on (servers on hosts of their own) do not count.
    """
    return find_host_boundary(
        point for series in all_series if find_host_boundary(series.points) for point in series.points
    )
