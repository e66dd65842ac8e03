"""``trainscale cluster`` for tests: the usual arguments, and what a command prints."""

from __future__ import annotations

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
