"""The power fails while the real command measures: every trial that it reported is in the journal, at any moment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from power_loss import Disk, build_recorder, read_operations, write_state

from trainscale.record.journal import RUN, TRIALS, read_run, read_trials

from .places import install_plugin

TRIAL_COUNT = 3
ARGUMENTS = (
    "run", "--models", "nap", "-b", "1,2,3", "--frameworks", "sleepy", "--no-parity", "--no-witness", "--devices", "2",
    "--warmup", "2", "--steps", "5", "--repeats", "1", "--json", "-o", "new/runs/out",
)  # fmt: skip


def reported(output: bytes) -> list[str]:
    """Return the keys of the trials that had ended, by the complete lines of the output."""
    events = [json.loads(line) for line in output[: output.rfind(b"\n") + 1].splitlines()]
    return [event["trial"] for event in events if event["event"] == "trial-ends"]


@pytest.mark.processes
def test_a_reported_trial_outlives_a_power_failure_at_any_moment(tmp_path: Path) -> None:
    library = build_recorder(tmp_path)
    if library is None:
        pytest.skip("the recording of writes is written in C: it needs a C compiler, cc")
    root, log = tmp_path / "root", tmp_path / "log"
    root.mkdir()
    variables = {
        "PYTHONPATH": str(install_plugin(tmp_path / "plugin")),
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(log),
    }
    command = [sys.executable, "-m", "trainscale", *ARGUMENTS]
    done = subprocess.run(command, cwd=root, env={**os.environ, **variables}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(reported(done.stdout)) == TRIAL_COUNT
    disk, directory = Disk(), root / "new" / "runs" / "out"
    journal_files = {str(directory / RUN), str(directory / TRIALS)}
    moments = 0
    for number, operation in enumerate(read_operations(log)):
        disk.apply(operation)
        keys = reported(disk.printed)
        if operation.kind == "print" or not keys:
            continue
        for name, state in disk.survivors():
            files = {path: content for path, content in state.items() if path in journal_files}
            after = write_state(files, str(root), tmp_path / "after") / "new" / "runs" / "out"
            assert after.is_dir(), f"after {number} {operation.kind} {operation.path}: {name}"
            assert read_run(after).spec
            assert [record.trial.key for record in read_trials(after)][: len(keys)] == keys, name
            moments += 1
    assert disk.printed == done.stdout
    assert moments > 100
