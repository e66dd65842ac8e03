"""What a trial's events add up to. The events are made by hand, the clock is a number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainscale.launch.observe import Observer
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config, Trial

STALL = 30.0


class Scene:
    """An observer, and ranks that speak to it in order."""

    def __init__(self, devices: int = 2, servers: int = 0) -> None:
        strategy = "ps" if servers else "allreduce"
        config = Config("torch", "mnist", 8, strategy, 28, 10, servers=servers)
        self.now = 0.0
        self.observer = Observer(Trial(config, devices, 0), self.now, STALL)
        self._sequence: dict[int, int] = {}

    def says(self, rank: int, kind: str, **values: Any) -> None:
        sequence = self._sequence.get(rank, 0)
        self._sequence[rank] = sequence + 1
        self.hears({"kind": kind, "rank": rank, "seq": sequence, **values})

    def loses_a_line(self, rank: int, count: int = 1) -> None:
        self._sequence[rank] = self._sequence.get(rank, 0) + count

    def hears(self, event: dict[str, Any]) -> None:
        """As the controller gets it: through JSON."""
        self.observer.feed(json.loads(json.dumps(event)), self.now)

    def begins(self, rank: int) -> None:
        self.says(rank, "hello", host="here", pid=rank, role="worker", versions={"torch": "2.9"})
        self.says(rank, "ready", parameters=100)

    def moves(self, rank: int, phase: str = "measure", step: int = 1) -> None:
        self.says(rank, "heartbeat", phase=phase, step=step)

    def measures(self, rank: int, **changes: Any) -> None:
        """Everything that a rank says after its window."""
        steps = [0.5, 0.25, 0.25]
        self.says(rank, "memory", device_peak_bytes=None, host_peak_bytes=1000 + rank)
        self.says(rank, "steps", first=0, seconds=steps)
        result = {
            "images": 24,
            "steps": 3,
            "warmup": 2,
            "window_seconds": 1.0,
            "startup_seconds": 2.0,
            "first_step_seconds": 0.75,
            "first_loss": 2.5,
            "last_loss": 2.25,
            "cpu_seconds": 0.875,
            "involuntary_switches": 3,
            "weights_digest": "abc",
        }
        self.says(rank, "result", **{**result, **changes})

    def fails(self, rank: int, message: str, error: str = "crash") -> None:
        self.says(rank, "error", error=error, message=message)

    def exits(self, rank: int, code: int = 0, tail: str = "") -> None:
        self.hears({"kind": "exit", "rank": rank, "code": code, "tail": tail})

    def prints(self, rank: int, line: str) -> None:
        self.hears({"kind": "log", "rank": rank, "text": line})

    def ends(self, **changes: Any) -> None:
        end = {"seconds": 10.0, "own_cpu_seconds": 15.0, "machine_busy_seconds": 16.0, "kernel_kills": 0}
        self.hears({"kind": "end", **end, **changes})

    def record(self) -> TrialRecord:
        return self.observer.record("2026", 12.34567)


def a_good_scene(devices: int = 2) -> Scene:
    scene = Scene(devices)
    for rank in range(devices):
        scene.begins(rank)
        scene.measures(rank)
        scene.exits(rank)
    scene.ends()
    return scene


# ---- a good trial


def test_a_good_trial_becomes_a_record_of_raw_samples() -> None:
    scene = a_good_scene()
    record = scene.record()
    assert scene.observer.finished
    assert record.ok
    assert record.failure is None
    assert (record.seconds, record.warmup, record.steps, record.parameters) == (12.346, 2, 3, 100)
    assert record.versions == {"torch": "2.9"}
    assert record.notes == ()
    first, second = record.ranks
    assert (first.rank, first.host, first.images, first.window_seconds) == (0, "here", 24, 1.0)
    assert first.step_seconds == (0.5, 0.25, 0.25)
    assert (first.startup_seconds, first.first_step_seconds) == (2.0, 0.75)
    assert (first.first_loss, first.last_loss, first.weights_digest) == (2.5, 2.25, "abc")
    assert (first.cpu_seconds, first.involuntary_switches, first.device_peak_bytes) == (0.875, 3, None)
    assert (second.rank, second.host_peak_bytes) == (1, 1001)


def test_a_trial_is_finished_when_every_rank_has_measured_and_ended() -> None:
    scene = Scene()
    for rank in range(2):
        scene.begins(rank)
        scene.measures(rank)
    assert scene.observer.measured
    assert not scene.observer.finished
    scene.exits(0)
    assert not scene.observer.finished
    scene.exits(1)
    assert scene.observer.finished


def test_ranks_that_are_still_leaving_do_not_spoil_a_measured_trial() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.measures(0)
    assert scene.record().ok


def test_what_goes_wrong_after_the_result_is_a_note_and_no_failure() -> None:
    scene = Scene(2)
    for rank in range(2):
        scene.begins(rank)
        scene.measures(rank)
    scene.fails(1, "Connection closed by peer")
    scene.exits(0, 0)
    scene.exits(1, -11)
    record = scene.record()
    assert record.ok
    assert record.notes == (
        "rank 1 failed after its result: Connection closed by peer",
        "rank 1 was ended by SIGSEGV after its result",
    )


def test_what_servers_saw_is_kept_apart_from_the_workers_samples() -> None:
    scene = Scene(devices=1, servers=1)
    for rank in range(2):
        scene.begins(rank)
    scene.measures(0)
    assert not scene.observer.measured
    scene.says(1, "result", served={"updates": 5})
    record = scene.record()
    assert record.ok
    assert len(record.ranks) == 1
    assert record.servers == ({"updates": 5},)


def test_step_times_that_come_in_chunks_are_put_together() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.says(0, "steps", first=0, seconds=[0.5] * 200)
    scene.says(0, "steps", first=200, seconds=[0.25] * 197)
    scene.measures(0, steps=400)  # three more
    (sample,) = scene.record().ranks
    assert sample.step_seconds == (0.5,) * 200 + (0.25,) * 197 + (0.5, 0.25, 0.25)
    assert scene.record().notes == ()


def test_a_loss_that_is_not_a_number_becomes_no_number() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.measures(0, first_loss=float("nan"), last_loss=float("inf"))
    (sample,) = scene.record().ranks
    assert (sample.first_loss, sample.last_loss) == (None, None)
    json.dumps(scene.record().to_dict(), allow_nan=False)


def test_what_else_kept_the_machine_busy_is_kept() -> None:
    scene = a_good_scene()
    assert scene.record().machine == {"other_cores": 0.1}  # 16 busy core-seconds less 15 of ours, in 10 s


def test_a_machine_that_does_not_tell_how_busy_it_was_says_nothing() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.measures(0)
    scene.ends(machine_busy_seconds=None)
    assert scene.record().machine == {}


# ---- lost lines


def test_a_lost_line_is_noticed_by_the_gap_in_the_sequence() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.loses_a_line(0)
    scene.moves(0)
    scene.loses_a_line(0, count=2)
    scene.measures(0)
    assert scene.record().notes == ("rank 0: 1 event line lost", "rank 0: 2 event lines lost")


def test_lost_step_times_are_noted_with_their_number() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.measures(0, steps=100)
    assert "rank 0: 100 steps taken, times of 3 arrived" in scene.record().notes


def test_events_of_unknown_kinds_and_ranks_are_ignored() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.says(0, "season", number=1)
    scene.hears({"kind": "heartbeat", "rank": 17, "seq": 0, "phase": "measure", "step": 1})
    scene.hears({"kind": "log", "rank": 0, "text": "hello"})
    scene.measures(0)
    assert scene.record().ok


# ---- failures and who is to blame


def test_the_rank_that_was_killed_is_blamed_and_not_its_victims() -> None:
    scene = Scene()
    for rank in range(2):
        scene.begins(rank)
        scene.moves(rank, "measure", 7)
    scene.fails(0, "[enforce fail] Connection closed by peer [127.0.0.1]:5678")
    scene.exits(0, 1, "Traceback\nRuntimeError: Connection closed by peer")
    scene.exits(1, -9, "last words\nof rank 1")
    record = scene.record()
    assert record.status == "crash"
    assert record.failure is not None
    assert record.failure.rank == 1
    assert record.failure.message == "rank 1 was ended by SIGKILL in measure, step 7"
    assert record.failure.tail == ("last words", "of rank 1")


def test_the_rank_with_an_error_of_its_own_is_blamed_and_not_its_victims() -> None:
    scene = Scene(3)
    scene.fails(0, "Connection reset by peer")
    scene.fails(2, "rank 0 left the meeting: it ended early, see its log")
    scene.fails(1, "the network does not like this image")
    for rank in range(3):
        scene.exits(rank, 1, f"log of rank {rank}")
    failure = scene.record().failure
    assert failure is not None
    assert (failure.rank, failure.message) == (1, "rank 1: the network does not like this image")
    assert failure.tail == ("log of rank 1",)


def test_among_equals_the_first_to_fail_is_blamed() -> None:
    scene = Scene(2)
    scene.fails(1, "shape mismatch")
    scene.fails(0, "shape mismatch too")
    failure = scene.record().failure
    assert failure is not None
    assert failure.rank == 1


def test_running_out_of_memory_is_its_own_kind_and_comes_before_other_errors() -> None:
    scene = Scene(2)
    scene.fails(0, "something else broke")
    scene.fails(1, "CUDA out of memory. Tried to allocate 2.00 GiB", error="oom")
    for rank in range(2):
        scene.exits(rank, 1)
    record = scene.record()
    assert record.status == "oom"
    assert record.failure is not None
    assert record.failure.message == "rank 1: CUDA out of memory. Tried to allocate 2.00 GiB"


def test_a_kill_by_the_kernel_is_out_of_memory() -> None:
    scene = Scene(2)
    scene.exits(1, -9)
    scene.fails(0, "Connection closed by peer")
    scene.ends(kernel_kills=1)
    record = scene.record()
    assert record.status == "oom"
    assert record.failure is not None
    assert record.failure.message == "rank 1 was ended by the kernel: out of memory"


def test_a_kill_without_the_kernels_word_is_a_crash() -> None:
    scene = Scene(1)
    scene.exits(0, -9)
    scene.ends(kernel_kills=0)
    assert scene.record().status == "crash"


def test_a_segmentation_fault_is_named() -> None:
    scene = Scene(1)
    scene.moves(0, "build", 0)
    scene.exits(0, -11)
    failure = scene.record().failure
    assert failure is not None
    assert failure.message == "rank 0 was ended by SIGSEGV in build"


def test_a_signal_without_a_name_is_a_crash_like_any_other() -> None:
    scene = Scene(1)
    scene.exits(0, -40)
    failure = scene.record().failure
    assert failure is not None
    assert "40" in failure.message


def test_an_exit_code_is_named_with_the_place() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.moves(0, "warm-up", 3)
    scene.exits(0, 3, "leaving")
    failure = scene.record().failure
    assert failure is not None
    assert (failure.message, failure.tail) == ("rank 0 ended with exit code 3 in warm-up, step 3", ("leaving",))


def test_an_exit_without_a_result_is_a_failure_even_with_code_0() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.exits(0, 0)
    record = scene.record()
    assert record.status == "crash"
    assert record.failure is not None
    assert "ended without a result" in record.failure.message


def test_samples_of_ranks_that_measured_are_kept_when_another_fails() -> None:
    scene = Scene(2)
    scene.begins(0)
    scene.measures(0)
    scene.exits(1, 3)
    record = scene.record()
    assert not record.ok
    assert [sample.rank for sample in record.ranks] == [0]


def test_a_failure_is_known_at_once() -> None:
    scene = Scene(2)
    assert not scene.observer.failed
    scene.fails(1, "boom")
    assert scene.observer.failed


def test_a_failing_server_is_blamed_by_its_rank() -> None:
    scene = Scene(devices=1, servers=1)
    scene.fails(1, "the server broke")
    scene.exits(1, 1)
    failure = scene.record().failure
    assert failure is not None
    assert failure.message == "rank 1: the server broke"


def test_a_passed_deadline_is_a_timeout_that_says_how_far_it_came() -> None:
    scene = Scene(2)
    scene.moves(0, "measure", 9)
    scene.moves(1, "measure", 4)
    scene.hears({"kind": "deadline", "seconds": 60.0})
    assert scene.observer.failed
    record = scene.record()
    assert record.status == "timeout"
    assert record.failure is not None
    assert record.failure.message == "the trial passed its time limit in measure, step 4"


def test_a_timeouts_log_comes_with_its_failure() -> None:
    scene = Scene(2)
    scene.moves(0, "measure", 9)
    scene.moves(1, "measure", 4)
    scene.prints(0, "all is well")
    scene.prints(1, "this is slow")
    scene.hears({"kind": "deadline", "seconds": 60.0})
    scene.ends()
    failure = scene.record().failure
    assert failure is not None
    assert failure.tail == ("this is slow",)


def test_a_keeper_that_is_gone_is_a_lost_host() -> None:
    scene = Scene(1)
    scene.observer.lose("node7")
    record = scene.record()
    assert record.status == "lost"
    assert record.failure is not None
    assert record.failure.message == "the keeper on node7 ended without a word"


def test_a_taken_port_is_worth_another_try() -> None:
    scene = Scene(2)
    scene.fails(0, "[Errno 98] Address already in use", error="port")
    assert scene.observer.port_taken
    assert scene.observer.failed


def test_an_ordinary_failure_is_no_taken_port() -> None:
    scene = Scene(2)
    scene.fails(0, "boom")
    assert not scene.observer.port_taken


# ---- hangs


def test_a_silent_rank_is_named() -> None:
    scene = Scene(2)
    for rank in range(2):
        scene.begins(rank)
        scene.moves(rank, "measure", 5)
    scene.now = STALL + 5
    scene.moves(0, "measure", 6)
    scene.observer.look_for_hang(scene.now)
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
    scene.observer.look_for_hang(scene.now)
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
    scene.observer.look_for_hang(scene.now)
    assert not scene.observer.failed


def test_nothing_hangs_before_its_time() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.now = STALL
    scene.observer.look_for_hang(scene.now)
    assert not scene.observer.failed


def test_a_change_of_phase_is_progress() -> None:
    scene = Scene(1)
    scene.moves(0, "build", 0)
    scene.now = STALL - 1
    scene.moves(0, "first step", 0)
    scene.now = 2 * STALL - 2
    scene.moves(0, "first step", 0)
    scene.observer.look_for_hang(scene.now)
    assert not scene.observer.failed


def test_a_first_step_may_compile_for_four_times_as_long() -> None:
    scene = Scene(1)
    scene.moves(0, "first step", 0)
    for late, failed in ((4 * STALL, False), (4 * STALL + 1, True)):
        scene.now = late
        scene.moves(0, "first step", 0)  # alive, and where it was
        scene.observer.look_for_hang(scene.now)
        assert scene.observer.failed == failed


def test_a_rank_that_ended_is_not_silent() -> None:
    scene = Scene(2)
    scene.begins(0)
    scene.measures(0)
    scene.exits(0)
    scene.now = STALL + 1
    scene.moves(1, "measure", 3)
    scene.observer.look_for_hang(scene.now)
    assert not scene.observer.failed


def test_a_hanging_ranks_log_comes_with_its_failure() -> None:
    scene = Scene(1)
    scene.moves(0, "join", 0)
    scene.prints(0, "waiting for the others")
    scene.now = STALL + 1
    scene.observer.look_for_hang(scene.now)
    scene.ends()  # the keeper ends the rank; there is no word about its exit
    failure = scene.record().failure
    assert failure is not None
    assert (failure.message, failure.tail) == ("rank 0 was silent for 31 s in join", ("waiting for the others",))


@pytest.mark.parametrize(("hosts", "phase", "hinted"), [(2, "join", True), (2, "measure", False), (1, "join", False)])
def test_ranks_that_never_meet_over_hosts_point_at_the_network(hosts: int, phase: str, hinted: bool) -> None:
    scene = Scene(2)
    scene.observer = Observer(scene.observer.trial, 0.0, STALL, hosts=hosts)
    scene.moves(0, phase, 1)
    scene.moves(1, phase, 1)
    scene.observer.look_for_hang(STALL + 1)
    failure = scene.record().failure
    assert failure is not None
    assert ("do the hosts reach each other's ports?" in failure.message) is hinted


def test_the_live_view_shows_the_slowest_worker() -> None:
    scene = Scene(devices=2, servers=1)
    scene.moves(0, "measure", 9)
    scene.moves(1, "measure", 4)
    scene.moves(2, "serve", 0)
    assert scene.observer.step == ("measure", 4)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_record_of_a_failure_can_be_written_to_the_journal(failing: int) -> None:
    scene = Scene(2)
    scene.fails(failing, "boom")
    scene.exits(failing, 1, "a\nb")
    record = scene.record()
    assert TrialRecord.from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False))) == record


def test_the_drivers_count_of_a_rank_is_beside_the_allocators() -> None:
    scene = Scene(2)
    for rank in (0, 1):
        scene.begins(rank)
        scene.measures(rank)
        scene.says(rank, "memory", device_peak_bytes=500, host_peak_bytes=7, loaders_peak_bytes=3)
    scene.hears({"kind": "nvml", "rank": 0, "peak_bytes": 900})
    scene.hears({"kind": "nvml", "rank": 1, "note": "no driver"})
    for rank in (0, 1):
        scene.exits(rank)
    one, two = scene.record().ranks
    assert (one.device_peak_bytes, one.nvml_peak_bytes, one.nvml_note, one.loaders_peak_bytes) == (500, 900, "", 3)
    assert (two.nvml_peak_bytes, two.nvml_note) == (None, "no driver")


def test_a_drivers_count_below_the_allocators_is_not_believed() -> None:
    scene = Scene(1)
    scene.begins(0)
    scene.measures(0)
    scene.says(0, "memory", device_peak_bytes=500, host_peak_bytes=7)
    scene.hears({"kind": "nvml", "rank": 0, "peak_bytes": 499})
    scene.exits(0)
    record = scene.record()
    (rank,) = record.ranks
    assert rank.nvml_peak_bytes is None
    assert "499 bytes where the allocator once had 500" in rank.nvml_note
    assert record.notes == ()  # a reason, not a doubt about the measurement


@pytest.mark.parametrize(("limited", "kind"), [(True, "oom"), (False, "crash")])
@pytest.mark.parametrize("code", [-6, -11, 1])
def test_a_rank_that_ends_without_a_word_under_a_limit_had_no_memory(limited: bool, kind: str, code: int) -> None:
    scene = Scene(1)
    if limited:
        scene.says(0, "limit", memory_limit_bytes=3 * 1024**3)
    scene.exits(0, code)
    failure = scene.record().failure
    assert failure is not None
    assert failure.kind == kind
    assert ("with no more than 3.0 GiB to allocate" in failure.message) is limited


def test_an_error_that_a_rank_names_under_a_limit_stays_what_it_is() -> None:
    scene = Scene(1)
    scene.says(0, "limit", memory_limit_bytes=3 * 1024**3)
    scene.fails(0, "no such layer")
    scene.exits(0, 1)
    failure = scene.record().failure
    assert failure is not None
    assert failure.kind == "crash"
