"""A disk without space: the message names the file and says what is kept, and nothing that was finished is lost."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from stored_runs import two_series, write_run

from trainscale.errors import TrainscaleError
from trainscale.launch.trial.trial import RankLogs
from trainscale.record.files import write_atomically
from trainscale.record.journal import open_journal, read_trials
from trainscale.spec.config import Trial

RUN = ("run", "--models", "mnist:8", "--steps", "3", "--warmup", "2", "--repeats", "2", "--devices", "1", "-o", "out")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Within this block no file of this process can be larger. Python ignores the signal, so a write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_journal_that_is_full_keeps_its_trials_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    first, second, third = curve(make_config(), {1: 10.0}, repeats=3, spread=0.01)
    directory = tmp_path / "run"
    with open_journal(directory, make_run()) as journal:
        journal.append(first)
        size = (directory / "trials.jsonl").stat().st_size
        with largest_file(size + 100), pytest.raises(TrainscaleError) as caught:
            journal.append(second)
        assert str(caught.value) == (
            f"{directory}/trials.jsonl: File too large; the trial that has just ended could not be recorded"
            " (trials kept: 1); the same command continues when the file can be written"
        )
        assert (directory / "trials.jsonl").stat().st_size == size
        journal.append(third)
    assert [record.trial.repeat for record in read_trials(directory)] == [0, 2]


def test_an_output_that_cannot_be_written_is_named_and_the_earlier_one_stays(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "results.csv", "earlier")
    with largest_file(10), pytest.raises(OSError, match=r"File too large") as caught:
        write_atomically(path, "x" * 100)
    assert caught.value.filename == str(path)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_logs_that_cannot_be_written_cost_no_trial(tmp_path: Path) -> None:
    trial = Trial(make_config(), 1, 0)
    with RankLogs(tmp_path, trial) as logs, largest_file(20):
        logs.write(0, "short")
        assert logs.notes == ()
        logs.write(0, "a line that is too long")
        logs.write(0, "another")
    assert logs.notes == (f"the logs end early: {tmp_path}/{trial.key}.rank0.log: File too large",)


def on_small_disk(folder: Path, size: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder that is a file system of this size; return it when the file system is gone. What it
    held is copied to ``kept``, beside the folder.
    """
    script = (
        'cp -r "$1/." "$2" && mount -t tmpfs -o "size=$3" tmpfs "$1" && cp -r "$2/." "$1" && cd "$1" || exit 99\n'
        'folder=$1; kept=$2; shift 3; "$@"; code=$?; cp -r "$folder/." "$kept"; exit $code'
    )
    kept = folder.parent / "kept"
    kept.mkdir()
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), str(kept), size]
    done = subprocess.run(
        [*command, sys.executable, "-m", "trainscale", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "120"}, timeout=240,
    )  # fmt: skip
    if done.returncode in (1, 99) and "trainscale: " not in done.stderr:
        pytest.skip(f"a small file system needs root and mount: {done.stderr.strip()}")
    return done


@pytest.mark.processes
def test_a_report_on_a_full_disk_has_its_tables_and_names_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    write_run(folder / "run", two_series())
    done = on_small_disk(folder, "500k", "report", "run")
    assert done.returncode == 1
    assert done.stderr == "trainscale: run/report.html: No space left on device\n"
    assert (tmp_path / "kept" / "run" / "results.csv").read_text()
    assert not (tmp_path / "kept" / "run" / "report.html").exists()


@pytest.mark.framework
def test_a_run_on_a_full_disk_shows_its_results_and_says_what_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = on_small_disk(folder, "500k", *RUN)
    assert done.returncode == 1, done.stdout
    assert (
        "trainscale: out/report.html: No space left on device; all 2 finished trials are kept in out/trials.jsonl; "
        in (done.stderr)
    )
    assert "trainscale report out writes the outputs later" in done.stderr
    assert "Deep MNIST" in done.stdout
    assert len(read_trials(tmp_path / "kept" / "out")) == 2
