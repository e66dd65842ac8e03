"""The kind of a trial's failure and the rank that caused it. The events and the clock are simulated."""

import json
from typing import Any

import pytest
from simulated_trial import SimulatedTrial

from trainscale.launch.connection import HostLost, ReceivedEvent
from trainscale.record.trial import TrialRecord

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("deeds", "expected"),
    [
        # The rank that was killed is blamed, not its victims.
        (
            [(0, "Connection closed by peer [127.0.0.1]:5678", ""), (0, 1), (1, -9, "last words\nof rank 1")],
            ("crash", 1, "rank 1 was ended by SIGKILL in measure, step 7", ("last words", "of rank 1")),
        ),
        # So is the rank with an error of its own.
        (
            [
                (0, "Connection reset by peer", ""),
                (2, "rank 0 left the rendezvous: it ended early, see its log", ""),
                (1, "the network does not like this image", ""),
                *((rank, 1, f"log of rank {rank}") for rank in range(3)),
            ],
            ("crash", 1, "rank 1: the network does not like this image", ("log of rank 1",)),
        ),
        # Among equals, it is the first to fail.
        ([(1, "shape mismatch", ""), (0, "shape mismatch too", "")], ("crash", 1, "rank 1: shape mismatch", ())),
        # Running out of memory is its own kind and comes before other errors.
        ([(0, "something else broke", ""), (1, OOM, "oom"), (0, 1), (1, 1)], ("oom", 1, f"rank 1: {OOM}", ())),
    ],
)
def test_the_rank_that_caused_a_failure_is_blamed(deeds: list[Any], expected: tuple[Any, ...]) -> None:
    """A deed is an error of a rank with its kind, or an exit code, perhaps with the end of its log."""
    trial = SimulatedTrial(3)
    for rank in range(3):
        trial.start_rank(rank)
        trial.send_heartbeat(rank, "measure", 7)
    for rank, deed, *more in deeds:
        if isinstance(deed, str):
            trial.send_error(rank, deed, *filter(None, more))
        else:
            trial.exit_rank(rank, deed, *more)
    failure = trial.failure
    assert (failure.kind, failure.rank, failure.message, failure.tail) == expected


def test_a_kill_by_the_kernel_is_out_of_memory() -> None:
    trial = SimulatedTrial(2)
    trial.exit_rank(1, -9)
    trial.send_error(0, "Connection closed by peer")
    trial.end_host(kernel_kills=1)
    failure = trial.failure
    assert failure.kind == "oom"
    assert failure.message == "rank 1 was ended by the kernel: out of memory"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-9, "rank 0 was ended by SIGKILL in warm-up, step 3"),  # the kernel did not say that memory ran out
        (-11, "rank 0 was ended by SIGSEGV in warm-up, step 3"),
        (-40, "rank 0 was ended by signal 40 in warm-up, step 3"),
        (3, "rank 0 ended with exit code 3 in warm-up, step 3"),
        (0, "rank 0 ended without a result in warm-up, step 3"),
    ],
)
def test_an_exit_without_a_result_is_a_crash_that_names_code_and_place(code: int, message: str) -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.send_heartbeat(0, "warm-up", 3)
    trial.exit_rank(0, code, "leaving")
    trial.end_host(kernel_kills=0)
    failure = trial.failure
    assert (failure.kind, failure.message, failure.tail) == ("crash", message, ("leaving",))


def test_samples_of_ranks_that_measured_are_kept_when_another_fails() -> None:
    trial = SimulatedTrial(2)
    trial.measure_rank(0)
    trial.exit_rank(1, 3)
    record = trial.record()
    assert not record.ok
    assert [sample.rank for sample in record.ranks] == [0]


@pytest.mark.parametrize("error", ["crash", "port"])
def test_a_failure_is_known_at_once_and_a_taken_port_is_worth_another_try(error: str) -> None:
    trial = SimulatedTrial(2)
    assert not trial.state.has_failed
    trial.send_error(1, "[Errno 98] Address already in use", error=error)
    assert trial.state.has_failed
    assert trial.state.is_port_taken is (error == "port")


def test_a_failing_server_is_blamed_by_its_rank() -> None:
    trial = SimulatedTrial(devices=1, servers=1)
    trial.send_error(1, "the server broke")
    trial.exit_rank(1, 1)
    assert trial.failure.message == "rank 1: the server broke"


def test_a_passed_deadline_is_a_timeout_that_says_how_far_it_came_with_the_log() -> None:
    trial = SimulatedTrial(2)
    trial.send_heartbeat(0, "measure", 9)
    trial.send_heartbeat(1, "measure", 4)
    trial.print_line(0, "all is well")
    trial.print_line(1, "this is slow")
    trial.receive({"kind": "deadline", "seconds": 60.0})
    assert trial.state.has_failed
    trial.end_host()
    failure = trial.failure
    assert (failure.kind, failure.tail) == ("timeout", ("this is slow",))
    assert failure.message == "the trial passed its time limit in measure, step 4"


@pytest.mark.parametrize(
    ("lost", "message", "host"),
    [
        ([HostLost("node2")], "the keeper on node2 ended without a message", "node2"),
        # mpirun ends all keepers when it has lost node2.
        (
            [HostLost("node1", was_ended=True), HostLost("node2"), HostLost("node3")],
            "the keeper on node2 ended without a message",
            "node2",
        ),
        ([HostLost("", ("srun was ended by SIGKILL",))], "srun was ended by SIGKILL", ""),
    ],
)
def test_a_keeper_that_is_gone_is_a_lost_host_unless_it_was_told_to_end(
    lost: list[HostLost], message: str, host: str
) -> None:
    trial = SimulatedTrial(4, hosts=2)
    for event in lost:
        trial.state.update(ReceivedEvent(event.culprit or "node1", event), trial.now)
    failure = trial.failure
    assert (failure.kind, failure.message, failure.host) == ("lost", message, host)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_record_of_a_failure_can_be_written_to_the_journal(failing: int) -> None:
    trial = SimulatedTrial(2)
    trial.send_error(failing, "boom")
    trial.exit_rank(failing, 1, "a\nb")
    record = trial.record()
    assert TrialRecord.from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False))) == record


@pytest.mark.parametrize(
    ("limited", "error", "kind"), [(True, "", "oom"), (False, "", "crash"), (True, "no such layer", "crash")]
)
@pytest.mark.parametrize("code", [-6, -11, 1])
def test_a_rank_that_ends_without_a_word_under_a_limit_had_no_memory(
    limited: bool, error: str, kind: str, code: int
) -> None:
    trial = SimulatedTrial(1)
    if limited:
        trial.emit(0, "limit", memory_limit_bytes=3 * 1024**3)
    if error:
        trial.send_error(0, error)
    trial.exit_rank(0, code)
    assert trial.failure.kind == kind
    assert ("with no more than 3.0 GiB to allocate" in trial.failure.message) is (kind == "oom")


# ---- the time limit on several hosts


def end_by_deadline(trial: SimulatedTrial, host: str, now: float) -> None:
    trial.now = now
    trial.receive({"kind": "deadline", "seconds": 60.0}, host)


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("message", ["Connection closed by peer [10.0.0.1]:4242", "a message that nobody knows"])
def test_ranks_that_lose_others_at_the_time_limit_do_not_hide_it(is_seen_first: bool, message: str) -> None:
    """Their host's events may arrive before those of the host whose keeper ended its ranks."""
    trial = SimulatedTrial(4, hosts=2)
    for rank in range(4):
        trial.send_heartbeat(rank, "measure", 9)
    trial.now = 59.8
    if is_seen_first:
        trial.send_error(3, message)
    end_by_deadline(trial, "node1", 60.0)
    if not is_seen_first:
        trial.send_error(3, message)
    trial.exit_rank(3, 1)
    failure = trial.failure
    assert failure.kind == "timeout"
    assert failure.message == "the trial passed its time limit in measure, step 9"


def test_a_keeper_that_ends_after_the_time_limit_is_no_lost_host() -> None:
    trial = SimulatedTrial(2, hosts=2)
    end_by_deadline(trial, "node1", 60.0)
    trial.lose_host("node2", was_ended=True)
    assert trial.record().status == "timeout"


@pytest.mark.parametrize(("failed_at", "host"), [(58.5, "node1"), (59.9, "node2")])
def test_a_rank_that_failed_well_before_the_time_limit_or_before_its_own_keepers_is_blamed(
    failed_at: float, host: str
) -> None:
    """Events of one host arrive in order."""
    trial = SimulatedTrial(2, hosts=2)
    trial.now = failed_at
    trial.send_error(1, "the network does not like this image")
    end_by_deadline(trial, host, 60.0)
    failure = trial.failure
    assert (failure.kind, failure.rank) == ("crash", 1)


@pytest.mark.parametrize(("seconds", "blamed"), [(40.0, 1), (20.0, None)])
def test_a_time_limit_that_passes_while_ranks_wait_for_one_names_it(seconds: float, blamed: int | None) -> None:
    trial = SimulatedTrial(2, hosts=2)
    for rank, step in ((0, 9), (1, 8)):
        trial.send_heartbeat(rank, "measure", step)
    end_by_deadline(trial, "node1", seconds)
    failure = trial.failure
    assert (failure.kind, failure.rank) == ("timeout", blamed)
    named = "; rank 1 (node2, GPU 1) had made no progress for 40 s" if blamed else ""
    assert failure.message == f"the trial passed its time limit in measure, step 8{named}"


# ---- where a rank is


def test_on_several_hosts_a_rank_is_named_with_its_host_and_device() -> None:
    trial = SimulatedTrial(4, hosts=2)
    trial.send_heartbeat(3, "measure", 7)
    trial.exit_rank(3, -9)
    failure = trial.failure
    assert failure.message == "rank 3 (node2, GPU 3) was ended by SIGKILL in measure, step 7"
    assert (failure.rank, failure.host) == (3, "node2")
