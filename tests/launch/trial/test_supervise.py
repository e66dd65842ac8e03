"""A trial that fails is a record with its reason, the rank to blame and its last lines; and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import python_for
from forked_frameworks import forked_processes, launcher_for
from processes import MARK, marked
from trials import TrialOutcome, run_trial

from trainscale.launch.trial import trial as supervision

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []
    assert forked_processes() == []


def fail(folder: Path, network: str, **settings: object) -> TrialOutcome:
    outcome = run_trial(folder, devices=2, models=(f"nets:{network}:4",), forks=True, **settings)  # type: ignore[arg-type]
    assert not outcome.record.ok
    assert outcome.record.failure is not None
    return outcome


def test_the_check_above_sees_a_forked_process() -> None:
    launcher = launcher_for(python_for("torch"), "torch", "fp32")
    with launcher.connect(["localhost"]):
        assert len(forked_processes()) == 1  # the keeper


def test_an_exception_in_one_rank_is_a_crash_of_that_rank_with_its_traceback(tmp_path: Path) -> None:
    failure = fail(tmp_path, "raises").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "does not like this image" in failure.message
    assert any("ValueError" in line for line in failure.tail)


def test_running_out_of_memory_is_its_own_kind(tmp_path: Path) -> None:
    failure = fail(tmp_path, "out_of_memory").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("oom", 1)


def test_a_killed_worker_is_blamed_and_not_those_who_lost_it(tmp_path: Path) -> None:
    failure = fail(tmp_path, "killed").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "SIGKILL" in failure.message


def test_a_worker_that_leaves_is_a_crash_with_its_exit_code_and_last_lines(tmp_path: Path) -> None:
    failure = fail(tmp_path, "exits").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "exit code 3" in failure.message
    assert failure.tail[-1] == "leaving early, as the test asked"


def test_a_stopped_rank_hangs_and_is_named(tmp_path: Path) -> None:
    failure = fail(tmp_path, "stops", stall_seconds=10.0).record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("hang", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "rank"), [("loops", 1), ("loops_first", 0)])
def test_a_rank_that_lives_but_does_not_move_hangs_and_is_named(tmp_path: Path, network: str, rank: int) -> None:
    """And not a rank that waits for it in an exchange."""
    failure = fail(tmp_path, network, stall_seconds=10.0).record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("hang", rank)
    assert "no progress" in failure.message
    assert failure.message.endswith(" fail")  # the function in which it is


def test_a_worker_that_hangs_after_all_results_are_in_is_ended_and_the_results_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parameter server waits for it, and so has no result."""
    monkeypatch.setattr(supervision, "_SECONDS_TO_LEAVE", 4.0)
    record = run_trial(
        tmp_path, devices=2, models=("nets:never_leaves:4",), strategies=("ps:1",), forks=True, timeout_seconds=40.0
    ).record
    assert record.ok, record.failure
    assert len(record.ranks) == 2
    (note,) = record.notes
    assert note.startswith("ended by force after all results were in: ")
    assert "rank 1 in leave" in note


def test_a_trial_past_its_time_limit_is_ended(tmp_path: Path) -> None:
    failure = fail(tmp_path, "loops", timeout_seconds=8.0).record.failure
    assert failure is not None
    assert failure.kind == "timeout"


def test_what_a_rank_prints_goes_to_its_log_and_never_disturbs_events(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, devices=2, models=("nets:chatty:4",), forks=True)
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    log = next((tmp_path / "logs").glob("*rank1.log")).read_text()
    assert log.count("of a very talkative network") == 3000
    assert "no newline at the end" in log


def test_grandchildren_in_sessions_of_their_own_are_ended_too(tmp_path: Path) -> None:
    failure = fail(tmp_path, "forks_away").record.failure
    assert failure is not None
    assert failure.kind == "crash"


def test_a_parameter_server_whose_worker_dies_does_not_stay(tmp_path: Path) -> None:
    failure = fail(tmp_path, "killed", strategies=("ps:1",)).record.failure
    assert failure is not None
    assert failure.rank == 1


def test_an_interpreter_that_does_not_exist_is_a_crash_that_says_so(tmp_path: Path) -> None:
    record = run_trial(tmp_path, python=str(tmp_path / "no-such-python")).record
    assert record.failure is not None
    assert record.failure.kind == "crash"
    assert "no-such-python" in record.failure.tail[-1]
