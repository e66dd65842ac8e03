"""Trials that hang: which rank is named, and when. The events and the clock are simulated."""

from __future__ import annotations

import pytest
from simulated_trial import STALL, SimulatedTrial


def test_a_silent_rank_is_named() -> None:
    trial = SimulatedTrial(2)
    for rank in range(2):
        trial.start_rank(rank)
        trial.send_heartbeat(rank, "measure", 5)
    trial.now = STALL + 5
    trial.send_heartbeat(0, "measure", 6)
    trial.check_for_hang()
    record = trial.record()
    assert record.status == "hang"
    assert record.failure is not None
    assert record.failure.rank == 1
    assert record.failure.message == "rank 1 was silent for 35 s in measure, step 5"


def test_when_nobody_moves_the_slowest_is_named() -> None:
    trial = SimulatedTrial(3)
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        trial.start_rank(rank)
        trial.send_heartbeat(rank, "measure", step)
    trial.now = STALL + 1
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        trial.send_heartbeat(rank, "measure", step)  # alive, and where they were
    trial.check_for_hang()
    failure = trial.record().failure
    assert failure is not None
    assert failure.kind == "hang"
    assert failure.message == "rank 1 made no progress for 31 s in measure, step 4"


def test_one_rank_that_moves_keeps_the_trial_alive() -> None:
    trial = SimulatedTrial(2)
    trial.send_heartbeat(0, "measure", 5)
    trial.send_heartbeat(1, "measure", 5)
    trial.now = STALL + 1
    trial.send_heartbeat(0, "measure", 6)
    trial.send_heartbeat(1, "measure", 5)
    trial.check_for_hang()
    assert not trial.state.has_failed


def test_nothing_hangs_before_its_time() -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.now = STALL
    trial.check_for_hang()
    assert not trial.state.has_failed


def test_a_change_of_phase_is_progress() -> None:
    trial = SimulatedTrial(1)
    trial.send_heartbeat(0, "build", 0)
    trial.now = STALL - 1
    trial.send_heartbeat(0, "first step", 0)
    trial.now = 2 * STALL - 2
    trial.send_heartbeat(0, "first step", 0)
    trial.check_for_hang()
    assert not trial.state.has_failed


def test_a_first_step_may_compile_for_four_times_as_long() -> None:
    trial = SimulatedTrial(1)
    trial.send_heartbeat(0, "first step", 0)
    for late, failed in ((4 * STALL, False), (4 * STALL + 1, True)):
        trial.now = late
        trial.send_heartbeat(0, "first step", 0)  # alive, and where it was
        trial.check_for_hang()
        assert trial.state.has_failed == failed


def test_a_rank_that_ended_is_not_silent() -> None:
    trial = SimulatedTrial(2)
    trial.start_rank(0)
    trial.send_result(0)
    trial.exit_rank(0)
    trial.now = STALL + 1
    trial.send_heartbeat(1, "measure", 3)
    trial.check_for_hang()
    assert not trial.state.has_failed


def test_a_hanging_ranks_log_comes_with_its_failure() -> None:
    trial = SimulatedTrial(1)
    trial.send_heartbeat(0, "join", 0)
    trial.print_line(0, "waiting for the others")
    trial.now = STALL + 1
    trial.check_for_hang()
    trial.end_host()  # the keeper ends the rank; there is no word about its exit
    failure = trial.record().failure
    assert failure is not None
    assert (failure.message, failure.tail) == ("rank 0 was silent for 31 s in join", ("waiting for the others",))


@pytest.mark.parametrize(("hosts", "phase", "hinted"), [(2, "join", True), (2, "measure", False), (1, "join", False)])
def test_ranks_that_never_meet_over_hosts_point_at_the_network(hosts: int, phase: str, hinted: bool) -> None:
    trial = SimulatedTrial(2, hosts=hosts)
    trial.send_heartbeat(0, phase, 1)
    trial.send_heartbeat(1, phase, 1)
    trial.now = STALL + 1
    trial.check_for_hang()
    failure = trial.record().failure
    assert failure is not None
    assert ("do the hosts reach each other's ports?" in failure.message) is hinted
