"""The record that a trial's events add up to. The events and the clock are simulated."""

import json
import math
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_trial import SimulatedTrial, successful_trial

from trainscale.launch.trial.trial import RankLogs
from trainscale.record.trial import GpuState, MachineLoad, ServerResult
from trainscale.spec.config import Config, Trial

# ---- a good trial


def test_a_good_trial_becomes_a_record_of_raw_samples() -> None:
    trial = successful_trial()
    record = trial.record()
    assert trial.state.is_finished
    assert record.ok
    assert record.failure is None
    assert (record.seconds, record.warmup, record.steps, record.parameters) == (12.346, 2, 3, 100)
    assert record.versions == {"torch": "2.9"}
    assert record.allocator == {"MALLOC_TOP_PAD_": "0"}
    assert record.notes == ()
    first, second = record.ranks
    assert (first.rank, first.host, first.samples, first.window_seconds) == (0, "here", 24, 1.0)
    assert first.step_seconds == (0.5, 0.25, 0.25)
    assert (first.startup_seconds, first.first_step_seconds) == (2.0, 0.75)
    assert (first.first_loss, first.last_loss, first.weights_digest) == (2.5, 2.25, "abc")
    assert (first.cpu_seconds, first.involuntary_switches, first.device_peak_bytes) == (0.875, 3, None)
    assert (second.rank, second.host_peak_bytes) == (1, 1001)


def test_a_trial_is_finished_when_every_rank_has_measured_and_ended() -> None:
    trial = SimulatedTrial()
    for rank in range(2):
        trial.measure_rank(rank)
    assert trial.state.is_measured
    assert trial.record().ok  # ranks that are still leaving do not spoil it
    assert not trial.state.is_finished
    trial.exit_rank(0)
    assert not trial.state.is_finished
    trial.exit_rank(1)
    assert trial.state.is_finished


def test_what_goes_wrong_after_the_result_is_a_note_and_no_failure() -> None:
    trial = SimulatedTrial(2)
    for rank in range(2):
        trial.measure_rank(rank)
    trial.send_error(1, "Connection closed by peer")
    trial.exit_rank(0, 0)
    trial.exit_rank(1, -11)
    record = trial.record()
    assert record.ok
    assert record.notes == (
        "rank 1 failed after its result: Connection closed by peer",
        "rank 1 was ended by SIGSEGV after its result",
    )


def test_what_servers_saw_is_kept_apart_from_the_workers_samples() -> None:
    trial = SimulatedTrial(devices=1, servers=1)
    for rank in range(2):
        trial.start_rank(rank)
    trial.send_result(0)
    assert not trial.state.is_finished  # the server has something to tell
    trial.emit(1, "served", updates=5)
    record = trial.record()
    assert record.ok
    assert len(record.ranks) == 1
    assert record.servers == (ServerResult(updates=5),)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, "fast"])
def test_a_report_with_what_is_no_number_of_json_is_named_and_not_believed(seconds: object) -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    sample = {"rank": 0, "host": "", "samples": 1, "window_seconds": seconds, "step_seconds": []}
    trial.emit(0, "report", text=json.dumps({"sample": sample}), start=0, is_last=True)
    trial.exit_rank(0)
    record = trial.record()
    assert record.status == "crash"
    assert record.notes[0].startswith("rank 0: its report cannot be read: ")
    json.dumps(record.to_dict(), allow_nan=False)


def test_what_else_kept_the_machine_busy_is_kept_if_it_is_known() -> None:
    trial = successful_trial()
    assert trial.record().machine == MachineLoad(other_cores=0.1)  # 16 busy core-seconds less 15 of ours, in 10 s
    trial = SimulatedTrial(1)
    trial.measure_rank(0)
    trial.end_host(machine_busy_seconds=None)
    assert trial.record().machine == MachineLoad()


# ---- lost lines


def test_a_lost_line_is_noticed_by_the_gap_in_the_sequence() -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.lose_lines(0)
    trial.send_heartbeat(0)
    trial.lose_lines(0, count=2)
    trial.send_result(0)
    assert trial.record().notes == ("rank 0: 1 event line lost", "rank 0: 2 event lines lost")


def test_a_report_of_which_a_line_is_lost_is_no_result() -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.emit(0, "report", text='{"sample": {}, ', start=0)
    trial.lose_lines(0)
    trial.emit(0, "report", text="}", start=30, is_last=True)
    trial.exit_rank(0)
    record = trial.record()
    assert record.failure is not None
    assert record.failure.message == "rank 0 ended without a result in start"
    assert record.notes == ("rank 0: 1 event line lost",)


def test_events_of_unknown_kinds_and_ranks_are_ignored() -> None:
    trial = SimulatedTrial(1)
    trial.start_rank(0)
    trial.emit(0, "season", number=1)
    trial.receive({"kind": "heartbeat", "rank": 17, "seq": 0, "phase": "measure", "step": 1})
    trial.receive({"kind": "log", "rank": 0, "text": "hello"})
    trial.send_result(0)
    assert trial.record().ok


def test_the_live_view_shows_the_slowest_worker() -> None:
    trial = SimulatedTrial(devices=2, servers=1)
    trial.send_heartbeat(0, "measure", 9)
    trial.send_heartbeat(1, "measure", 4)
    trial.send_heartbeat(2, "serve", 0)
    assert trial.state.slowest_worker.position == "measure, step 4"


def test_the_drivers_count_of_a_rank_is_beside_the_allocators() -> None:
    trial = SimulatedTrial(2)
    for rank in (0, 1):
        trial.measure_rank(rank, device_peak_bytes=500, loaders_peak_bytes=3)
    state = {"samples": 2, "sm_mhz_min": 1200}
    trial.receive({"kind": "gpu", "rank": 0, "peak_bytes": 800, "state": state})
    trial.receive({"kind": "gpu", "rank": 0, "peak_bytes": 900, "state": state})
    trial.receive({"kind": "gpu", "rank": 1, "note": "no driver"})
    for rank in (0, 1):
        trial.exit_rank(rank)
    first, second = trial.record().ranks
    assert (first.device_peak_bytes, first.loaders_peak_bytes) == (500, 3)
    assert (first.nvml_peak_bytes, first.nvml_note, first.gpu) == (900, "", GpuState(2, sm_mhz_min=1200))
    assert (second.nvml_peak_bytes, second.nvml_note, second.gpu) == (None, "no driver", None)
    # A count below the allocator's is not believed.
    trial = SimulatedTrial(1)
    trial.measure_rank(0, device_peak_bytes=500)
    trial.receive({"kind": "gpu", "rank": 0, "peak_bytes": 499})
    trial.exit_rank(0)
    record = trial.record()
    (rank,) = record.ranks
    assert rank.nvml_peak_bytes is None
    assert "499 bytes where the allocator once had 500" in rank.nvml_note
    assert record.notes == ()  # a reason, not a doubt about the measurement


# ---- after all results are in


def measured_trial() -> SimulatedTrial:
    trial = SimulatedTrial(devices=2, servers=1, hosts=3)
    for rank in range(3):
        trial.start_rank(rank)
    for rank in range(2):
        trial.send_result(rank)
        trial.send_heartbeat(rank, "leave", 0)
    trial.exit_rank(0)
    return trial


def test_a_rank_that_does_not_leave_is_named_in_a_note_and_the_results_count() -> None:
    trial = measured_trial()
    trial.state.note_stayed_ranks()
    record = trial.record()
    assert record.ok
    assert len(record.ranks) == 2
    assert record.notes == (
        "ended by force after all results were in: rank 1 (node2, GPU 1) in leave, rank 2 (node3, GPU 2) in start",
    )


def test_a_time_limit_or_a_lost_host_or_server_after_the_results_takes_nothing_from_them() -> None:
    trial = measured_trial()
    trial.receive({"kind": "deadline", "seconds": 60.0}, "node2")
    assert trial.record().ok
    assert "rank 1 (node2, GPU 1)" in trial.record().notes[0]
    trial = measured_trial()
    trial.lose_host("node2")
    trial.exit_rank(2, -9)
    record = trial.record()
    assert record.ok
    assert record.notes == (
        "node2 was lost after the results of all workers were in",
        "rank 2 (node3, GPU 2) failed after the results of all workers were in",
    )


def test_results_of_some_workers_only_are_no_measurement() -> None:
    trial = SimulatedTrial(2)
    trial.send_result(0)
    trial.receive({"kind": "deadline", "seconds": 60.0})
    assert trial.record().status == "timeout"


# ---- the logs of its ranks

TRIAL = Trial(Config("torch", "mnist", 32, "allreduce", 28, 10), 300, 0)


@pytest.fixture
def _few_open_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("_few_open_files")
def test_more_ranks_may_print_than_files_may_be_open_and_no_line_is_lost(tmp_path: Path) -> None:
    with RankLogs(tmp_path / "logs", TRIAL) as logs:
        for number in range(3):
            for rank in range(300):
                logs.write(rank, f"line {number} of {rank}")
    for rank in range(300):
        lines = (tmp_path / "logs" / f"{TRIAL.key}.rank{rank}.log").read_text().splitlines()
        assert lines == [f"line {number} of {rank}" for number in range(3)]


def test_a_trial_that_runs_again_begins_its_logs_anew(tmp_path: Path) -> None:
    for text in ("before", "after"):
        with RankLogs(tmp_path, TRIAL) as logs:
            logs.write(0, text)
    assert (tmp_path / f"{TRIAL.key}.rank0.log").read_text() == "after\n"


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    logs_folder = tmp_path / "logs"
    logs_folder.mkdir()
    (logs_folder / f"{TRIAL.key}.rank0.log").symlink_to(outside)
    with RankLogs(logs_folder, TRIAL) as logs:
        logs.write(0, "overwritten")
    assert "symbolic links" in logs.notes[0]
    assert outside.read_text() == "precious\n"
