"""Runs of ``trainscale run`` that a program measures one after the other, in several calls if its time is limited."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainscale.record.trial import TrialRecord

UNFINISHED = 3  # exit code of a program that has to be called again


def continue_run(directory: Path, arguments: Sequence[str], end: float) -> bool:
    """Return whether the run is complete. It is interrupted at ``end``."""
    if (directory / "complete").exists():
        return True
    if time.monotonic() >= end:
        return False
    command = [sys.executable, "-m", "trainscale", "run", *arguments, "-o", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
    if process.returncode == 0:
        (directory / "complete").touch()
    elif process.returncode != 130:
        raise SystemExit(f"{directory}: the run failed with {process.returncode}")
    return process.returncode == 0


def compute_device_seconds(records: Sequence[TrialRecord]) -> float:
    return sum(record.seconds * record.trial.devices for record in records)
