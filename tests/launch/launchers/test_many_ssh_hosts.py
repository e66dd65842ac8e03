"""64 hosts over ssh, with real sshd and real keepers: a check, and a trial with a rank on every host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

from lab import Lab

pytestmark = [pytest.mark.hosts, pytest.mark.framework, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 64


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(COUNT)


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    (tmp_path / "nodes").write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
    return tmp_path


def trainscale(lab: Lab, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainscale", *arguments, "--hosts", "nodes"]
    return lab.run(command, cwd=folder, env={**os.environ, "COLUMNS": "160"}, timeout=800)


def left(lab: Lab) -> list[str]:
    return [line for name in lab.hosts for line in lab.processes(name)]


def test_all_hosts_are_checked(lab: Lab, folder: Path) -> None:
    done = trainscale(lab, folder, "check")
    assert done.returncode in (0, 1), done.stderr  # 1: it warns of what hosts have, which is not the subject here
    assert all(name in done.stdout for name in ("node1", "node32", "node64"))
    assert "no answer" not in done.stdout
    until(lambda: left(lab) == [], "the end of all keepers")


def test_a_trial_has_a_rank_on_every_host(lab: Lab, folder: Path) -> None:
    measure = ("--warmup", "2", "--steps", "3", "--repeats", "1", "--timeout", "700s", "--stall-timeout", "600s")
    done = trainscale(lab, folder, "run", "--models", "mnist:8", "-g", "1", "--devices", "64", *measure, "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = [json.loads(line) for line in (folder / "out" / "trials.jsonl").read_text().splitlines()]
    assert sorted(rank["host"] for rank in record["ranks"]) == sorted(lab.hosts)
    assert not any("lost" in note for note in record["notes"])
    until(lambda: left(lab) == [], "the end of all keepers")
