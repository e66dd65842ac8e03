"""Failures of trials over two hosts: what the row says, and which rank and host it names. Each host is a keeper of its
own on this machine, so its ranks are real processes.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trials
from forked_frameworks import forked_processes
from processes import MARK, marked
from this_machine_launcher import ThisMachineLauncher
from trials import run_trial

from trainscale.launch.connection import PipeConnection
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
