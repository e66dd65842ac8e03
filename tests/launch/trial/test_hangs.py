"""Trials that hang: which rank is named, and when. The events and the clock are simulated."""

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
    failure = trial.failure
    assert failure.kind == "hang"
    assert failure.rank == 1
    assert failure.message == "rank 1 was silent for 35 s in measure, step 5"


def test_when_nobody_moves_the_slowest_is_named() -> None:
    trial = SimulatedTrial(3)
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        trial.start_rank(rank)
        trial.send_heartbeat(rank, "measure", step)
    trial.now = STALL + 1
    for rank, step in ((0, 6), (1, 4), (2, 6)):
        trial.send_heartbeat(rank, "measure", step)  # alive, and where they were
    trial.check_for_hang()
    failure = trial.failure
    assert failure.kind == "hang"
    assert failure.message == "rank 1 made no progress for 31 s in measure, step 4"


def test_nothing_hangs_before_its_time_nor_while_one_rank_moves_or_changes_its_phase() -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.now = STALL
    trial.check_for_hang()
    assert not trial.state.has_failed
    trial = SimulatedTrial(2)
    trial.send_heartbeat(0, "measure", 5)
    trial.send_heartbeat(1, "measure", 5)
    trial.now = STALL + 1
    trial.send_heartbeat(0, "measure", 6)
    trial.send_heartbeat(1, "measure", 5)
    trial.check_for_hang()
    assert not trial.state.has_failed
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
    trial.measure_rank(0)
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
    failure = trial.failure
    assert (failure.message, failure.tail) == ("rank 0 was silent for 31 s in join", ("waiting for the others",))


@pytest.mark.parametrize(("hosts", "phase", "hinted"), [(2, "join", True), (2, "measure", False), (1, "join", False)])
def test_ranks_that_never_meet_over_hosts_point_at_the_network(hosts: int, phase: str, hinted: bool) -> None:
    trial = SimulatedTrial(2, hosts=hosts)
    trial.send_heartbeat(0, phase, 1)
    trial.send_heartbeat(1, phase, 1)
    trial.now = STALL + 1
    trial.check_for_hang()
    failure = trial.failure
    assert ("do the hosts reach each other's ports?" in failure.message) is hinted


# ---- which rank hangs

START = ["start.py:43 main", "rank.py:65 main", "loop.py:82 train"]
STEP = [*START, "loop.py:214 time_steps", "adapter.py:155 step"]
IN_EXCHANGE = [*STEP, "engines.py:50 update"]
IN_NETWORK = [*START, "loop.py:214 time_steps", "adapter.py:152 step", "nets.py:113 fail"]
IN_INPUT = [*START, "loop.py:213 time_steps", "loader.py:80 take"]


def stand_still(*calls: list[str], hosts: int = 1, cpu_seconds: tuple[float, ...] = ()) -> SimulatedTrial:
    """A trial in which no worker has made progress for long. Each is in these calls."""
    trial = SimulatedTrial(len(calls), hosts=hosts)
    for rank in range(len(calls)):
        trial.start_rank(rank)
        trial.send_heartbeat(rank, "measure", 4)
    trial.now = STALL + 1
    for rank, own_calls in enumerate(calls):
        trial.send_heartbeat(rank, "measure", 4, cpu_seconds[rank] if cpu_seconds else 0.0)
        trial.emit(rank, "stack", calls=own_calls)
    trial.check_for_hang()
    return trial


@pytest.mark.parametrize("hanging", [0, 1, 2])
@pytest.mark.parametrize("place", [IN_NETWORK, IN_INPUT])
def test_the_rank_that_did_not_reach_the_exchange_is_named(hanging: int, place: list[str]) -> None:
    calls = [IN_EXCHANGE] * 3
    calls[hanging] = place
    failure = stand_still(*calls).failure
    assert (failure.kind, failure.rank) == ("hang", hanging)
    assert failure.message == f"rank {hanging} made no progress for 31 s in measure, step 4 at {place[-1]}"
    assert failure.tail == ("call stack, outermost frame first:", *place)


@pytest.mark.parametrize("places", [[IN_EXCHANGE] * 2, [IN_EXCHANGE, IN_NETWORK]])
def test_no_rank_is_blamed_where_nothing_tells_which_one_the_others_wait_for(places: list[list[str]]) -> None:
    failure = stand_still(*places, hosts=2).failure
    assert (failure.kind, failure.rank, failure.host) == ("hang", None, "")
    assert failure.message == "no worker made progress for 31 s in measure, step 4; which of them hangs is unknown"
    assert failure.tail == tuple(
        f"rank {rank} (node{rank + 1}, GPU {rank}) at {place[-1]}" for rank, place in enumerate(places)
    )


def test_several_ranks_that_did_not_reach_the_exchange_are_all_listed() -> None:
    failure = stand_still(IN_EXCHANGE, IN_NETWORK, IN_EXCHANGE, IN_NETWORK, IN_EXCHANGE, hosts=2).failure
    assert failure.rank is None
    assert failure.message.startswith("rank 1 (node1, GPU 1), rank 3 (node2, GPU 3) made no progress for 31 s")


@pytest.mark.parametrize(
    ("cpu_seconds", "blamed"), [((0.3, 30.0, 0.3), 1), ((30.0, 30.0, 0.3), None), ((0.0, 0.0, 0.0), None)]
)
def test_a_rank_that_computes_while_all_others_are_idle_is_named(
    cpu_seconds: tuple[float, ...], blamed: int | None
) -> None:
    """Where the whole step is one call of a framework, all ranks are at the same place."""
    assert stand_still(*[IN_EXCHANGE] * 3, cpu_seconds=cpu_seconds).failure.rank == blamed


def test_the_calls_of_an_earlier_step_are_forgotten() -> None:
    trial = SimulatedTrial(2)
    trial.send_heartbeat(1, "measure", 3)
    trial.emit(1, "stack", calls=IN_NETWORK)
    assert trial.state.ranks[1].calls == tuple(IN_NETWORK)
    trial.send_heartbeat(1, "measure", 4)
    assert trial.state.ranks[1].calls == ()


def test_a_host_whose_ranks_are_all_silent_is_named() -> None:
    trial = SimulatedTrial(4, hosts=2)
    for rank in range(4):
        trial.now = 0.2 * rank
        trial.send_heartbeat(rank, "measure", 4)
    trial.now = STALL + 0.5
    for rank in range(2):
        trial.send_heartbeat(rank, "measure", 4)
    trial.check_for_hang()
    failure = trial.failure
    assert (failure.rank, failure.host) == (None, "node2")
    assert failure.message == "node2 with its ranks 2, 3 was silent for 30 s in measure, step 4"


def test_ranks_that_lose_a_rank_that_hangs_do_not_hide_it() -> None:
    trial = stand_still(IN_EXCHANGE, IN_NETWORK, IN_EXCHANGE)
    trial.send_error(0, "Connection closed by peer")
    failure = trial.failure
    assert (failure.kind, failure.rank) == ("hang", 1)
