"""A trial that fails is a record with its reason, the rank and host to blame and its last lines; and nothing of it is
left.
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trials
from environments import python_for
from forked_frameworks import forked_processes, launcher_for
from keepers import ThisMachineLauncher
from processes import MARK, marked
from trials import run_trial

from trainscale.launch.connection import PipeConnection
from trainscale.launch.trial import trial as supervision
from trainscale.launch.worker_archive import RUN_FIRST_LINE
from trainscale.record.trial import Failure
from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []
    assert forked_processes() == []


def test_the_check_above_sees_a_forked_process() -> None:
    launcher = launcher_for(python_for("torch"), "torch", "fp32")
    with launcher.connect(["localhost"]):
        assert len(forked_processes()) == 1  # the keeper


STALLS = {"stall_seconds": 10.0}


@pytest.mark.parametrize(
    ("network", "kind", "rank", "text", "settings"),
    [
        ("raises", "crash", 1, r"does not like this image.*\n(.*\n)*.*ValueError", {}),
        ("out_of_memory", "oom", 1, "", {}),
        ("killed", "crash", 1, r"^.*SIGKILL", {}),  # and not those who lost it
        ("killed", "crash", 1, "", {"strategies": ("ps:1",)}),  # whose parameter server does not stay
        ("exits", "crash", 1, r"^.*exit code 3.*\n(.*\n)*leaving early, as the test asked$", {}),
        ("stops", "hang", 1, "", STALLS),
        ("loops", "timeout", None, "", {"timeout_seconds": 8.0}),
        ("forks_away", "crash", 1, "", {}),  # grandchildren in sessions of their own are ended too
        # Of two that sleep, nothing tells which one hangs; but the row has the call in which each is.
        pytest.param("loops", "hang", None, r"\nrank 1 at nets.py:\d+ _loop$", STALLS, marks=pytest.mark.slow),
        pytest.param("loops_first", "hang", None, r"\nrank 0 at nets.py:\d+ _loop\n", STALLS, marks=pytest.mark.slow),
    ],
)
def test_a_failure_has_its_kind_the_rank_to_blame_and_its_last_lines(
    network: str, kind: str, rank: int | None, text: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    record = run_trial(tmp_path, devices=2, models=(f"nets:{network}:4",), forks=True, **settings).record
    failure = record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == (kind, rank), failure
    assert re.search(text, "\n".join([failure.message, *failure.tail])), failure


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


def test_what_a_rank_prints_goes_to_its_log_and_never_disturbs_events(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, devices=2, models=("nets:chatty:4",), forks=True)
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    log = next((tmp_path / "logs").glob("*rank1.log")).read_text()
    assert log.count("of a very talkative network") == 3000
    assert "no newline at the end" in log


def test_an_interpreter_that_does_not_exist_is_a_crash_that_says_so(tmp_path: Path) -> None:
    record = run_trial(tmp_path, python=str(tmp_path / "no-such-python")).record
    assert record.failure is not None
    assert record.failure.kind == "crash"
    assert "no-such-python" in record.failure.tail[-1]


# ---- over two hosts, each a keeper of its own on this machine


def fail(folder: Path, network: str, **settings: object) -> Failure:
    models = (f"nets:{network}:4",)
    record = run_trial(folder, devices=2, hosts=2, models=models, forks=True, **settings).record  # type: ignore[arg-type]
    assert record.hosts == 2
    assert record.failure is not None, record.notes
    return record.failure


def test_a_time_limit_that_one_host_notices_first_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank of the other host sees that its connection is closed."""
    write = PipeConnection.write

    def write_late(connection: PipeConnection, data: bytes) -> None:
        if connection.host == "node2" and b"deadline_seconds" in data:
            time.sleep(2.0)  # so that this keeper's time is over two seconds later
        write(connection, data)

    monkeypatch.setattr(PipeConnection, "write", write_late)
    failure = fail(tmp_path, "plain", timeout_seconds=20.0, measure=Measure(warmup=2, steps=10**7))
    assert failure.kind == "timeout", failure
    assert "Traceback" in next((tmp_path / "logs").glob("*.rank1.log")).read_text()


def test_a_killed_or_stopped_rank_is_named_with_its_host_and_device(tmp_path: Path) -> None:
    failure = fail(tmp_path / "killed", "killed")
    assert (failure.kind, failure.rank, failure.host) == ("crash", 1, "node2")
    assert failure.message.startswith("rank 1 (node2, core")
    assert "was ended by SIGKILL" in failure.message
    failure = fail(tmp_path / "stopped", "stops", stall_seconds=10.0)
    assert (failure.kind, failure.rank, failure.host) == ("hang", 1, "node2")


class LateLauncher(ThisMachineLauncher):
    def command(self, host: str) -> list[str]:
        late = "import time; time.sleep(30)\n" if host == "node2" else ""
        return [sys.executable, "-c", late + RUN_FIRST_LINE]


def test_a_host_that_does_not_start_within_the_trials_time_limit_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would start later, and the trial would succeed."""
    monkeypatch.setattr(trials, "launcher_for", lambda *_: LateLauncher(["node1", "node2"]))
    failure = fail(tmp_path, "plain", timeout_seconds=4.0)
    assert (failure.kind, failure.host) == ("lost", "node2")
    assert failure.message.startswith("node2: no answer in time; does it answer")
