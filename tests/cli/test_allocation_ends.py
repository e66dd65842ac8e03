"""An allocation of a real Slurm that ends under a run: what was not measured stays unmeasured, no host is blamed, and
the same command continues in another allocation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from login import Login
from processes import until

from lab import Lab, Slurm

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("outside_of_any_job")]

QUICK = ("--models", "mnist:8", "--warmup", "2", "-g", "1", "--devices", "2", "-o", "out")


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(3)


class AllocationLogin(Login):
    """Runs one command in the background, with its output in the file ``log``."""

    def __init__(self, lab: Lab, slurm: Slurm, folder: Path) -> None:
        super().__init__(lab, slurm, folder)
        self.log = folder / "log"

    def begin(self, *argv: str) -> subprocess.Popen[Any]:
        """Start a command and wait until it has measured its first trial."""
        with self.log.open("w") as file:
            popen = self.lab.popen(
                argv, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(lambda: self.statuses() or popen.poll() is not None, "the first trial", 180)
        assert popen.poll() is None, self.log.read_text()
        return popen

    def job(self) -> str:
        return self.run("squeue", "--noheader", "--format=%A").stdout.split()[0]

    def statuses(self) -> list[str]:
        path = self.folder / "out" / "trials.jsonl"
        return [json.loads(line)["status"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def login(lab: Lab, slurm: Slurm) -> Iterator[AllocationLogin]:
    folder = lab.shared / f"home-{len(list(lab.shared.iterdir()))}"
    folder.mkdir()
    login = AllocationLogin(lab, slurm, folder)
    yield login
    login.run("scancel", "--user=root")
    slurm.wait_for(lab.hosts)


def in_allocation(*options: str, repeats: int, steps: int = 3) -> list[str]:
    run = [sys.executable, "-m", "trainscale", "run", *QUICK, "--repeats", str(repeats), "--steps", str(steps)]
    return ["salloc", "--quiet", "--nodes=2", "--exclusive", *options, *run]


def has_rank(lab: Lab, host: str) -> bool:
    return any(line.endswith(" rank") for line in lab.processes(host))


def test_an_allocation_that_is_cancelled_leaves_the_rest_for_the_same_command_in_another(
    login: AllocationLogin,
) -> None:
    run = login.begin(*in_allocation(repeats=3))
    job = login.job()
    login.run("scancel", job)
    assert run.wait(60) == 130, login.log.read_text()
    output = login.log.read_text()
    assert f"stopped: the allocation has ended: job {job} was cancelled; " in output
    assert "kept; the same command continues" in output
    assert set(login.statuses()) == {"ok"}
    assert len(login.statuses()) < 3
    assert (login.folder / "out" / "report.html").exists()

    done = login.run(*in_allocation(repeats=3))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing: " in done.stdout
    assert login.statuses() == ["ok"] * 3


@pytest.mark.slow
def test_an_allocation_whose_time_is_over_ends_the_run_in_order(login: AllocationLogin) -> None:
    run = login.begin(*in_allocation("--time=1", repeats=1000))
    job = login.job()
    assert run.wait(180) == 130, login.log.read_text()
    assert f"stopped: the allocation has ended: job {job} reached its time limit of 00:01:00" in login.log.read_text()
    assert set(login.statuses()) == {"ok"}


@pytest.mark.slow
def test_a_requeued_job_goes_on_elsewhere_though_its_first_start_was_cut_off_and_lives(
    login: AllocationLogin, lab: Lab, slurm: Slurm
) -> None:
    """Its first start holds the journal until it notices that Slurm does not answer any more."""
    submit = ("--launcher", "slurm", "--nodes", "2", "--time", "30", "--repeats", "4", "--stall-timeout", "10s")
    run = login.begin(sys.executable, "-m", "trainscale", "run", *QUICK, "--steps", "3", *submit)
    job = login.job()
    batch_host = login.run("squeue", "--noheader", "--format=%B").stdout.strip()
    lab.link(batch_host, up=False)
    try:
        until(lambda: f"job {job} waits: BeginTime" in login.log.read_text(), "the job to be requeued", 120)
        login.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else after two minutes
        assert run.wait(200) == 0, login.log.read_text()
    finally:
        lab.link(batch_host, up=True)
    assert login.statuses() == ["ok"] * 4
    slurm.wait_for(lab.hosts)


@pytest.mark.slow
def test_a_node_that_slurm_loses_is_named_where_the_allocation_goes_on(
    login: AllocationLogin, lab: Lab, slurm: Slurm
) -> None:
    """Slurm then ends the keepers of the other nodes, too. They are not the cause."""
    argv = in_allocation("--no-kill", "--nodelist=node1,node2", repeats=1, steps=100_000)
    with login.log.open("w") as file:
        run = lab.popen(
            argv, cwd=login.folder, env=login.environment, stdin=subprocess.DEVNULL, stdout=file,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    until(lambda: has_rank(lab, "node2") or run.poll() is not None, "a rank", 180)
    assert run.poll() is None, login.log.read_text()
    lab.link("node2", up=False)
    try:
        until(lambda: login.statuses() or run.poll() is not None, "the end of the trial", 120)
        run.terminate()
        run.wait(60)
    finally:
        lab.link("node2", up=True)
    (row,) = (json.loads(line) for line in (login.folder / "out" / "trials.jsonl").read_text().splitlines())
    assert (row["status"], row["failure"]["host"]) == ("lost", "node2")
    assert row["failure"]["message"] == "the keeper on node2 ended: Slurm reports a node failure"
    slurm.wait_for(lab.hosts)
