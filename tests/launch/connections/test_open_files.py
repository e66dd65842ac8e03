"""Many hosts need more open files than a user usually has."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from trainscale.launch.connections.open_files import allow_open_files

LIMIT = resource.RLIMIT_NOFILE


@pytest.fixture(autouse=True)
def _usual_limit() -> Iterator[None]:
    before = resource.getrlimit(LIMIT)
    resource.setrlimit(LIMIT, (1024, before[1]))
    yield
    resource.setrlimit(LIMIT, before)


def test_few_hosts_leave_the_limit_as_it_is() -> None:
    allow_open_files(64)
    assert resource.getrlimit(LIMIT)[0] == 1024


def test_many_hosts_raise_it_and_no_more_than_the_system_allows() -> None:
    hard = resource.getrlimit(LIMIT)[1]
    allow_open_files(512)
    assert resource.getrlimit(LIMIT)[0] == min(4 * 512 + 256, hard)
    allow_open_files(10**6)
    assert resource.getrlimit(LIMIT)[0] <= hard
