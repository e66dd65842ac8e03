"""Ctrl-C, a kill -9 of the controller or of a worker: no finished trial is lost, no process is left, and the same
command goes on.
"""

import json
import os
import pty
import signal
import sys
import threading
from pathlib import Path

import pytest
from command import Command, trainscale
from processes import MARK, marked, until

pytestmark = pytest.mark.framework

ARGUMENTS = ("run", "--models", "mnist:8", "--steps", "20", "--warmup", "2", "--repeats", "2", "-o", "out")
TRIALS = 4  # one and two devices, twice


def lines(folder: Path) -> list[bytes]:
    path = folder / "out" / "trials.jsonl"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


@pytest.fixture
def under_way(tmp_path: Path) -> Command:
    """A run with one trial in its journal and another one training."""
    command = Command(tmp_path, *ARGUMENTS)
    until(lambda: lines(tmp_path), "the first trial")
    until(command.ranks, "the ranks of the second trial")
    return command


def finish_run(folder: Path, kept: list[bytes]) -> None:
    """The same command again measures what is missing, and only that."""
    done = trainscale(folder, *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} trials are in the journal" in done.stdout
    assert lines(folder)[: len(kept)] == kept
    keys = [json.loads(line)["key"] for line in lines(folder)]
    assert len(keys) == len(set(keys)) == TRIALS


def test_ctrl_c_ends_everything_keeps_what_was_finished_and_the_same_command_goes_on(
    tmp_path: Path, under_way: Command
) -> None:
    os.killpg(under_way.pid, signal.SIGINT)  # as a terminal sends it: to the whole foreground group
    done = under_way.finish()
    assert done.returncode == 130
    assert "the same command continues" in done.stdout
    assert "Traceback" not in done.stderr
    assert under_way.left() == []
    kept = lines(tmp_path)
    assert (tmp_path / "out" / "report.html").exists()
    finish_run(tmp_path, kept)


@pytest.mark.slow
def test_a_termination_signal_is_an_interruption(tmp_path: Path, under_way: Command) -> None:
    os.kill(under_way.pid, signal.SIGTERM)
    assert under_way.finish().returncode == 130
    assert under_way.left() == []


@pytest.mark.slow
def test_a_terminal_that_goes_away_is_an_interruption_and_the_results_so_far_are_written(tmp_path: Path) -> None:
    """As when an ssh connection drops: the shell's terminal is closed under the run."""
    pid, terminal = pty.fork()
    if pid == 0:  # the child, with a terminal of its own
        os.chdir(tmp_path)
        os.environ[MARK] = str(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "trainscale", *ARGUMENTS])
    drain = threading.Thread(target=read_all, args=(terminal,), daemon=True)
    drain.start()
    until(lambda: lines(tmp_path), "the first trial")
    until(lambda: len(marked(str(tmp_path))) > 2, "the ranks of the second trial")
    os.close(terminal)
    os.waitpid(pid, 0)
    until(lambda: not marked(str(tmp_path)), "the end of all processes")
    assert (tmp_path / "out" / "results.csv").exists()
    finish_run(tmp_path, lines(tmp_path))


def read_all(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def test_kill_9_of_the_controller_leaves_no_process_and_loses_no_trial(tmp_path: Path, under_way: Command) -> None:
    os.kill(under_way.pid, signal.SIGKILL)
    under_way.finish()
    until(lambda: not under_way.left(), "the end of the keeper and its ranks")
    finish_run(tmp_path, lines(tmp_path))


@pytest.mark.slow
def test_kill_9_of_the_keeper_leaves_no_rank_and_the_run_goes_on(tmp_path: Path, under_way: Command) -> None:
    keeper = next(pid for pid in under_way.left() if b"keeper" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(keeper, signal.SIGKILL)
    done = under_way.finish()
    assert done.returncode == 1, done.stdout
    assert under_way.left() == []
    statuses = [json.loads(line)["status"] for line in lines(tmp_path)]
    assert sorted(set(statuses)) == ["lost", "ok"]
    assert len(statuses) == TRIALS


@pytest.mark.slow
def test_kill_9_of_a_worker_is_a_row_with_its_reason_and_the_run_goes_on(tmp_path: Path, under_way: Command) -> None:
    os.kill(under_way.ranks()[-1], signal.SIGKILL)
    done = under_way.finish()
    assert done.returncode == 1, done.stdout
    assert under_way.left() == []
    failed = [record for record in map(json.loads, lines(tmp_path)) if record["status"] != "ok"]
    assert len(failed) == 1
    assert "SIGKILL" in failed[0]["failure"]["message"]
    assert len(lines(tmp_path)) == TRIALS
    again = trainscale(tmp_path, *ARGUMENTS, "--retry-failed")
    assert again.returncode == 0, again.stdout


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once_and_the_same_command_goes_on(tmp_path: Path, under_way: Command) -> None:
    kept = lines(tmp_path)
    os.kill(under_way.pid, signal.SIGINT)
    until(lambda: not under_way.ranks(), "the end of the trial")
    os.kill(under_way.pid, signal.SIGINT)
    done = under_way.finish()
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    until(lambda: not under_way.left(), "the end of all processes")
    assert lines(tmp_path) == kept
    finish_run(tmp_path, kept)
