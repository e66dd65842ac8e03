"""An allocation of a real Slurm that ends under a run: what was not measured stays unmeasured, no host is blamed, and
the same command continues in another allocation.
"""

import sys

import pytest
from lab_runs import Followed, Login, list_ranks
from processes import until

from lab import Lab, Slurm

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("outside_of_any_job")]
LAB_HOSTS = 3

QUICK = ("--models", "mnist:8", "--warmup", "2", "-g", "1", "--devices", "2", "-o", "out")


def begin(login: Login, *argv: str) -> Followed:
    """Start a command and wait until it has measured its first trial."""
    run = login.begin(*argv)
    until(lambda: login.trials() or run.has_ended, "the first trial", 180)
    assert not run.has_ended, run.output
    return run


def find_job(login: Login) -> str:
    return login.run("squeue", "--noheader", "--format=%A").stdout.split()[0]


def statuses(login: Login) -> list[str]:
    return [trial["status"] for trial in login.trials()]


def in_allocation(*options: str, repeats: int, steps: int = 3) -> list[str]:
    run = [sys.executable, "-m", "trainscale", "run", *QUICK, "--repeats", str(repeats), "--steps", str(steps)]
    return ["salloc", "--quiet", "--nodes=2", "--exclusive", *options, *run]


def test_an_allocation_that_is_cancelled_leaves_the_rest_for_the_same_command_in_another(
    login: Login,
) -> None:
    run = begin(login, *in_allocation(repeats=3))
    job = find_job(login)
    login.run("scancel", job)
    assert run.finish(60) == 130, run.output
    assert f"stopped: the allocation has ended: job {job} was cancelled; " in run.output
    assert "kept; the same command continues" in run.output
    assert set(statuses(login)) == {"ok"}
    assert len(statuses(login)) < 3
    assert (login.folder / "out" / "report.html").exists()

    done = login.run(*in_allocation(repeats=3))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing: " in done.stdout
    assert statuses(login) == ["ok"] * 3


@pytest.mark.slow
def test_an_allocation_whose_time_is_over_ends_the_run_in_order(login: Login) -> None:
    run = begin(login, *in_allocation("--time=1", repeats=1000))
    job = find_job(login)
    assert run.finish(180) == 130, run.output
    assert f"stopped: the allocation has ended: job {job} reached its time limit of 00:01:00" in run.output
    assert set(statuses(login)) == {"ok"}


@pytest.mark.slow
def test_a_requeued_job_goes_on_elsewhere_though_its_first_start_was_cut_off_and_lives(
    login: Login, lab: Lab, slurm: Slurm
) -> None:
    """Its first start holds the journal until it notices that Slurm does not answer any more."""
    submit = ("--launcher", "slurm", "--nodes", "2", "--time", "30", "--repeats", "4", "--stall-timeout", "10s")
    run = begin(login, sys.executable, "-m", "trainscale", "run", *QUICK, "--steps", "3", *submit)
    job = find_job(login)
    batch_host = login.run("squeue", "--noheader", "--format=%B").stdout.strip()
    lab.link(batch_host, up=False)
    try:
        until(lambda: f"job {job} waits: BeginTime" in run.output, "the job to be requeued", 120)
        login.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else after two minutes
        assert run.finish(200) == 0, run.output
    finally:
        lab.link(batch_host, up=True)
    assert statuses(login) == ["ok"] * 4
    slurm.wait_for(lab.hosts)


@pytest.mark.slow
def test_a_node_that_slurm_loses_is_named_where_the_allocation_goes_on(login: Login, lab: Lab, slurm: Slurm) -> None:
    """Slurm then ends the keepers of the other nodes, too. They are not the cause."""
    argv = in_allocation("--no-kill", "--nodelist=node1,node2", repeats=1, steps=100_000)
    run = login.begin(*argv)
    until(lambda: list_ranks(lab, "node2") or run.has_ended, "a rank", 180)
    assert not run.has_ended, run.output
    lab.link("node2", up=False)
    try:
        until(lambda: login.trials() or run.has_ended, "the end of the trial", 120)
        run.popen.terminate()
        run.finish(60)
    finally:
        lab.link("node2", up=True)
    (row,) = login.trials()
    assert (row["status"], row["failure"]["host"]) == ("lost", "node2")
    assert row["failure"]["message"] == "the keeper on node2 ended: Slurm reports a node failure"
    slurm.wait_for(lab.hosts)
