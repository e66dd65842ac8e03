"""Where a ladder leaves its first host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import curve, make_config

from trainscale.analyse.series import HostBoundary, Series, build_series, find_common_boundary, find_host_boundary


def climb(hosts: dict[int, int], **config: object) -> Series:
    """A series with these numbers of hosts by device count."""
    records = curve(make_config(**config), {devices: 10.0 * devices for devices in hosts})
    (series,) = build_series([replace(record, hosts=hosts[record.trial.devices]) for record in records])
    return series


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({1: 1, 2: 1, 4: 2, 8: 4}, HostBoundary(2, 4, 2, 4)),
        ({1: 1, 2: 2}, HostBoundary(1, 2, 2, 2)),
        ({1: 1, 2: 1, 4: 1}, None),
        ({1: 2, 2: 2}, None),
        ({1: 2, 2: 1, 4: 2}, None),
        ({}, None),
    ],
    ids=["filled", "one a host", "one host", "several from the start", "no count separates them", "nothing"],
)
def test_the_boundary_is_between_the_last_count_on_one_host_and_the_first_on_several(
    hosts: dict[int, int], expected: HostBoundary | None
) -> None:
    assert find_host_boundary(climb(hosts).points if hosts else ()) == expected


def test_series_that_are_on_several_hosts_throughout_do_not_blur_the_others() -> None:
    apart = climb({1: 2, 2: 2, 4: 3}, strategy="ps", servers=1)
    assert find_common_boundary([climb({1: 1, 2: 1, 4: 2}), apart]) == HostBoundary(2, 4, 2, 2)
    assert find_common_boundary([apart]) is None


def test_series_that_leave_their_first_host_at_different_counts_have_none_in_common() -> None:
    dealt = climb({1: 1, 2: 2, 4: 2}, placement="round-robin")
    assert find_common_boundary([climb({1: 1, 2: 1, 4: 2}), dealt]) is None


def test_a_failed_point_counts_with_the_hosts_that_it_was_on() -> None:
    records = curve(make_config(), {1: 10.0, 2: 19.0, 4: None})
    (series,) = build_series([replace(record, hosts=2 if record.trial.devices == 4 else 1) for record in records])
    assert find_host_boundary(series.points) == HostBoundary(2, 4, 2, 2)
