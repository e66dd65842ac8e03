"""Slow ranks: which, how slow, and since when."""

from __future__ import annotations

import random

import pytest
from planted import change_rank, small_config, trials

from trainscale.questions.explain.ranks import ANOTHER_PROGRAM, LIMIT, SLOW_DEVICE, find_slow_ranks
from trainscale.record.trial import MachineLoad

CONFIG = small_config(strategy="independent")


def test_equal_ranks_are_not_slow() -> None:
    assert find_slow_ranks(trials(CONFIG, 4, 0.05)) == ()


def test_a_rank_that_is_slow_in_some_repeats_only_is_not_named() -> None:
    records = trials(CONFIG, 2, (0.05, 0.08))
    records[2] = change_rank(records[2], 1, window_seconds=0.05 * 40)
    assert find_slow_ranks(records) == ()


def test_a_rank_whose_slowness_varies_much_is_not_named() -> None:
    records = trials(CONFIG, 2, (0.05, 0.08), repeats=3)
    for index, step in enumerate((0.055, 0.11, 0.06)):
        records[index] = change_rank(records[index], 1, window_seconds=step * 40)
    assert find_slow_ranks(records) == ()


def test_two_slow_ranks_of_four_are_named_the_slowest_first() -> None:
    slow = find_slow_ranks(trials(CONFIG, 5, (0.05, 0.07, 0.05, 0.1, 0.05)))
    assert [(entry.rank, round(entry.factor, 2)) for entry in slow] == [(3, 2.0), (1, 1.4)]


def test_a_rank_that_becomes_slow_is_dated() -> None:
    steps = (0.05,) * 25 + (0.1,) * 15
    records = [
        change_rank(record, 1, step_seconds=steps, window_seconds=sum(steps)) for record in trials(CONFIG, 2, 0.05)
    ]
    (slow,) = find_slow_ranks(records)
    assert slow.since_step == 26
    assert slow.since_seconds == pytest.approx(25 * 0.05)


def test_a_rank_that_is_slow_from_the_start_has_no_date() -> None:
    numbers = random.Random(5)
    records = []
    for record in trials(CONFIG, 2, 0.05):
        steps = tuple(0.08 * numbers.uniform(0.9, 1.1) for _ in range(40))
        records.append(change_rank(record, 1, step_seconds=steps, window_seconds=sum(steps)))
    (slow,) = find_slow_ranks(records)
    assert slow.since_step is None


@pytest.mark.parametrize(
    ("cpu_seconds", "core_wait", "reason"),
    [(2.0, 1.9, ANOTHER_PROGRAM), (2.0, 0.1, LIMIT), (4.0, 0.1, SLOW_DEVICE), (4.0, None, None)],
)
def test_the_share_of_its_core_and_waiting_for_it_are_evidence(
    cpu_seconds: float, core_wait: float | None, reason: str | None
) -> None:
    records = trials(CONFIG, 2, (0.05, 0.1), machine=MachineLoad(other_cores=0.97))
    records = [change_rank(record, 0, cpu_seconds=2.0) for record in records]
    records = [change_rank(r, 1, cpu_seconds=cpu_seconds, core_wait_seconds=core_wait) for r in records]
    (slow,) = find_slow_ranks(records)
    assert slow.core_share == pytest.approx(cpu_seconds / 4, rel=0.02)
    assert slow.others_core_share == pytest.approx(1.0, rel=0.02)
    assert slow.other_cores == 0.97
    assert slow.reason == reason


def test_a_point_of_one_device_has_no_slow_ranks() -> None:
    assert find_slow_ranks(trials(CONFIG, 1, 0.05)) == ()
