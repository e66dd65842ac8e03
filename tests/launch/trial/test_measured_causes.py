"""Causes planted in real processes are named. bench/verdicts.py does this for all causes, several times."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import verdicts
from planted_causes import CAUSES, Stopped

pytestmark = [
    pytest.mark.framework,
    pytest.mark.alone,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="workers need two cores"),
]


@pytest.fixture(autouse=True)
def _same_folder_afterwards() -> Iterator[None]:
    here = Path.cwd()
    yield
    os.chdir(here)


def test_workers_that_share_a_core_report_that_they_had_half_of_it(tmp_path: Path) -> None:
    """On a machine that others use, their slowness may be smaller than chance, but not the share that they got."""
    point = verdicts.run_cause(CAUSES["all workers on one core"], tmp_path)
    assert point.core_share is not None
    assert point.core_share < 0.6
    assert [part.causes for part in point.parts] == [("work",), ("contention",), ("stragglers",), ("communication",)]


def test_a_worker_that_is_stopped_most_of_the_time_is_named(tmp_path: Path) -> None:
    cause = replace(CAUSES["a worker with half a core"], plant=lambda _: Stopped(share=0.75))
    point = verdicts.run_cause(cause, tmp_path)
    assert [slow.rank for slow in point.slow_ranks] == [1]
    assert point.slow_ranks[0].factor > 2


def test_a_network_that_exchanges_longer_than_it_computes_is_too_small(tmp_path: Path) -> None:
    cause = CAUSES["a network too small to scale"]
    assert (verdicts.run_cause(cause, tmp_path).verdict,) == cause.expected
