"""Trials that go on for ever: who is named, and when. The events are made by hand, the clock is a number."""

from __future__ import annotations

import pytest
from scene import STALL, Scene


def test_a_silent_rank_is_named() -> None:
    scene = Scene(2)
    for rank in range(2):
        scene.begins(rank)
        scene.moves(rank, "measure", 5)
    scene.now = STALL + 5
    scene.moves(0, "measure", 6)
    scene.looks_for_hang()
    record = scene.record()
    assert record.status == "hang"
    assert record.failure is not None
    assert record.failure.rank == 1
    assert record.failure.message == "rank 1 was silent for 35 s in measure, step 5"


def test_when_nobody_moves_the_slowest_is_named() -> None:
    scene = Scene(3)
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        scene.begins(rank)
        scene.moves(rank, "measure", step)
    scene.now = STALL + 1
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        scene.moves(rank, "measure", step)  # alive, and where they were
    scene.looks_for_hang()
    failure = scene.record().failure
    assert failure is not None
    assert failure.kind == "hang"
    assert failure.message == "rank 1 made no progress for 31 s in measure, step 4"


def test_one_rank_that_moves_keeps_the_trial_alive() -> None:
    scene = Scene(2)
    scene.moves(0, "measure", 5)
    scene.moves(1, "measure", 5)
    scene.now = STALL + 1
    scene.moves(0, "measure", 6)
    scene.moves(1, "measure", 5)
    scene.looks_for_hang()
    assert not scene.state.has_failed


def test_nothing_hangs_before_its_time() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.now = STALL
    scene.looks_for_hang()
    assert not scene.state.has_failed


def test_a_change_of_phase_is_progress() -> None:
    scene = Scene(1)
    scene.moves(0, "build", 0)
    scene.now = STALL - 1
    scene.moves(0, "first step", 0)
    scene.now = 2 * STALL - 2
    scene.moves(0, "first step", 0)
    scene.looks_for_hang()
    assert not scene.state.has_failed


def test_a_first_step_may_compile_for_four_times_as_long() -> None:
    scene = Scene(1)
    scene.moves(0, "first step", 0)
    for late, failed in ((4 * STALL, False), (4 * STALL + 1, True)):
        scene.now = late
        scene.moves(0, "first step", 0)  # alive, and where it was
        scene.looks_for_hang()
        assert scene.state.has_failed == failed


def test_a_rank_that_ended_is_not_silent() -> None:
    scene = Scene(2)
    scene.begins(0)
    scene.measures(0)
    scene.exits(0)
    scene.now = STALL + 1
    scene.moves(1, "measure", 3)
    scene.looks_for_hang()
    assert not scene.state.has_failed


def test_a_hanging_ranks_log_comes_with_its_failure() -> None:
    scene = Scene(1)
    scene.moves(0, "join", 0)
    scene.prints(0, "waiting for the others")
    scene.now = STALL + 1
    scene.looks_for_hang()
    scene.ends()  # the keeper ends the rank; there is no word about its exit
    failure = scene.record().failure
    assert failure is not None
    assert (failure.message, failure.tail) == ("rank 0 was silent for 31 s in join", ("waiting for the others",))


@pytest.mark.parametrize(("hosts", "phase", "hinted"), [(2, "join", True), (2, "measure", False), (1, "join", False)])
def test_ranks_that_never_meet_over_hosts_point_at_the_network(hosts: int, phase: str, hinted: bool) -> None:
    scene = Scene(2, hosts=hosts)
    scene.moves(0, phase, 1)
    scene.moves(1, phase, 1)
    scene.now = STALL + 1
    scene.looks_for_hang()
    failure = scene.record().failure
    assert failure is not None
    assert ("do the hosts reach each other's ports?" in failure.message) is hinted
