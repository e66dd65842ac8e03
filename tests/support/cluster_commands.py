"""``trainscale cluster`` for tests: the usual arguments, and checks of what a command prints."""

from __future__ import annotations

import subprocess
from pathlib import Path

from command import trainscale
from simulated_aws import REGION

UP = ("cluster", "up", "--nodes", "3", "--type", "p4d.24xlarge", "--key", "key", "--ssh-from", "203.0.113.7")
HERE = ("--region", REGION)


def output_of(folder: Path, *argv: str) -> str:
    """Return what a command prints that succeeds."""
    done = trainscale(folder, *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def refusal(folder: Path, *argv: str, code: int = 2) -> str:
    """Return the message of a command that fails with this message only and writes no file."""
    before = sorted(folder.rglob("*"))
    done = trainscale(folder, *argv)
    return check_refusal(done, folder, before, code)


def check_refusal(done: subprocess.CompletedProcess[str], folder: Path, before: list[Path], code: int = 2) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("trainscale: ") == 1
    assert sorted(folder.rglob("*")) == before
    return done.stderr.removeprefix("trainscale: ")
