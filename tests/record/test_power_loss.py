"""The power fails at any moment: no trial that was reported is lost, and every file can be read.

A library that is preloaded records the writes, renames and syncs of a process (tests/support/record_writes.c). Each
prefix of them is a moment at which the power may fail, and for each the disk is made as file systems may leave it: with
or without the entries of folders that were not synced, with none, all, half, the last bytes or only the length of the
content that was not synced. Then the journal is opened there.

Audit hooks of Python would need no C, but they see neither writes nor syncs. To replace functions of ``os`` would miss
what Python's own files write.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from power_loss import Disk, Operation, build_recorder, read_operations, write_state

from trainscale.record.journal import check_directory, open_journal, read_run, read_trials
from trainscale.record.run import RunInfo

pytestmark = pytest.mark.processes

SPEC = {"series": [], "repeats": 4}
HEAD = """
import os
from pathlib import Path
from trainscale.record.files import write_atomically
from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import RankSample, TrialRecord
from trainscale.spec.config import Config, Trial

CONFIG = Config("torch", "mnist", 8, "allreduce", 28, 10, channels=1)

def record(repeat, steps=3):
    ranks = (RankSample(0, "here", 24, 0.6, (0.125,) * steps),)
    return TrialRecord(Trial(CONFIG, 1, repeat), "ok", "2026", 4.5, warmup=2, steps=steps, ranks=ranks)

def measure(*records):
    with open_journal(Path("runs/one"), RunInfo({"series": [], "repeats": 4})) as journal:
        for item in records:
            journal.append(item)
            print(item.trial.key, flush=True)
        write_atomically(journal.directory / "csv/results.csv", "".join(f"{r.trial.key}\\n" for r in journal.records))
"""
TWO_RUNS = HEAD + "measure(record(0), record(1, steps=3000))\nmeasure(record(2), record(3))\n"
WITHOUT_SYNC = HEAD + "os.fsync = lambda descriptor: None\nmeasure(record(0), record(1))\n"

Recorder = Callable[[str], list[Operation]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build_recorder(tmp_path_factory.mktemp("recorder"))
    if path is None:
        pytest.skip("the recording of writes is written in C: it needs a C compiler, cc")
    return path


@pytest.fixture
def record_program(library: Path, tmp_path: Path) -> Recorder:
    """Return a function that runs a program in an empty folder and returns what it did to the disk."""

    def run(program: str) -> list[Operation]:
        root, log = tmp_path / "root", tmp_path / "log"
        root.mkdir()
        variables = {"LD_PRELOAD": str(library), "RECORD_ROOT": str(root), "RECORD_LOG": str(log)}
        subprocess.run([sys.executable, "-c", program], cwd=root, env={**os.environ, **variables}, check=True)
        return read_operations(log)

    return run


def failures(operations: list[Operation], root: Path, target: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield every state of the disk after a power failure: its name, its folder, and the trials reported before."""
    disk = Disk()
    for number, operation in enumerate(operations):
        disk.apply(operation)
        if operation.kind == "print":
            continue
        for name, state in disk.survivors():
            reported = disk.printed.decode().split()
            yield (
                f"after {number} {operation.kind} {operation.path}: {name}",
                write_state(state, str(root), target),
                reported,
            )


def test_no_reported_trial_is_lost_and_the_run_goes_on(record_program: Recorder, tmp_path: Path) -> None:
    operations = record_program(TWO_RUNS)
    assert {"write", "sync", "sync-folder", "rename", "print"} <= {operation.kind for operation in operations}
    moments = 0
    for name, disk, reported in failures(operations, tmp_path / "root", tmp_path / "after"):
        directory = disk / "runs" / "one"
        if reported:
            assert read_run(directory).spec == SPEC, name
            assert [record.trial.key for record in read_trials(directory)][: len(reported)] == reported, name
        was_begun = check_directory(directory, SPEC)
        with open_journal(directory, RunInfo(SPEC)) as journal:
            keys = [record.trial.key for record in journal.records]
        assert keys[: len(reported)] == reported, name
        assert was_begun or not reported, name
        moments += 1
    assert moments > 200


def test_an_output_is_there_in_full_or_not_at_all(record_program: Recorder, tmp_path: Path) -> None:
    operations = record_program(TWO_RUNS)
    for name, disk, reported in failures(operations, tmp_path / "root", tmp_path / "after"):
        path = disk / "runs" / "one" / "csv" / "results.csv"
        lines = path.read_text().split() if path.exists() else []
        assert len(lines) in (0, 2, 4), name
        assert lines == reported[: len(lines)], name


def test_without_syncs_trials_would_be_lost(record_program: Recorder, tmp_path: Path) -> None:
    """So these tests can fail."""
    operations = record_program(WITHOUT_SYNC)
    lost = [
        name
        for name, disk, reported in failures(operations, tmp_path / "root", tmp_path / "after")
        if reported and not (disk / "runs" / "one" / "run.json").exists()
    ]
    assert lost
