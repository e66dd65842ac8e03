"""A sweep as one batch job on a real Slurm, which queues, runs, cancels and requeues it."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from lab_runs import Login

from trainscale.measure.submission import SlurmJob, SlurmUnreachable, read_status

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("outside_of_any_job")]
LAB_HOSTS = 2

ODD = """it's; "odd" 100 % #1"""
QUICK = ["--models", "mnist:8", "--warmup", "2", "--steps", "3", "-g", "1"]


def read_job(login: Login, output: str) -> str:
    return str(json.loads((login.folder / output / "slurm" / "job.json").read_text())["job"])


def leaves_nothing(login: Login) -> bool:
    return not any("trainscale" in line for name in login.lab.hosts for line in login.lab.processes(name))


def test_a_sweep_is_submitted_followed_to_its_end_and_shown_as_after_a_local_run(login: Login) -> None:
    argv = ["run", *QUICK, "--repeats", "1", "--launcher", "slurm", "--nodes", "2", "--time", "30", "-o", ODD]
    done = login.trainscale(*argv, "--partition", "main", SBATCH_PARTITION="nonesuch")  # what is typed wins
    assert done.returncode == 0, done.stdout + done.stderr
    job = read_job(login, ODD)
    assert f"job {job} submitted: 2 nodes for at most 30 min, results in {login.folder / ODD}/" in done.stdout
    assert f"job {job} runs on node[1-2]" in done.stdout
    assert re.search(r"1 device · repeat 1: [\d.,]+ images/s", done.stdout)
    assert re.search(r"2 devices · repeat 1: [\d.,]+ images/s", done.stdout)
    assert "Deep MNIST" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith(f"results: {login.folder / ODD}/")
    records = login.trials(ODD)
    assert [(record["devices"], record["hosts"], record["status"]) for record in records] == [
        (1, 1, "ok"),
        (2, 2, "ok"),
    ]
    assert {rank["host"] for rank in records[1]["ranks"]} == {"node1", "node2"}
    assert (login.folder / ODD / "report.html").exists()
    assert "results: " in (login.folder / ODD / "slurm" / f"job-{job}.log").read_text()
    assert leaves_nothing(login)

    again = login.trainscale(*argv)
    assert again.returncode == 0
    assert "all 2 trials are in the journal already" in again.stdout
    assert read_job(login, ODD) == job
    other = login.trainscale(*argv, "--seed", "2")
    assert other.returncode == 2
    assert "this directory is for another run, which differs in seed" in other.stderr


def test_inside_an_allocation_it_is_used_and_the_older_variables_are_heard(login: Login) -> None:
    argv = [sys.executable, "-m", "trainscale", "run", *QUICK, "--repeats", "1", "--devices", "2", "-o", "out"]
    older = {"TF_NUM_PS": "1", "TF_NUM_WORKERS": "2", "TF_PS_IN_WORKER": "true"}
    done = login.run("salloc", "--quiet", "--nodes=2", "--exclusive", *argv, **older)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "taken from TF_NUM_PS, TF_PS_IN_WORKER: servers 1, server placement beside, strategies ps" in done.stderr
    (record,) = login.trials("out")
    assert (record["config"]["strategy"], record["config"]["servers"], record["hosts"]) == ("ps", 1, 2)
    assert leaves_nothing(login)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_job_that_is_told_to_end_keeps_what_is_finished_and_the_same_command_continues(
    login: Login, name: str
) -> None:
    (login.folder / "mine.toml").write_text('launcher = "slurm"\nnodes = 1\nrepeats = 3\n')
    argv = ["run", "mine.toml", *QUICK, "--time", "30", "-o", "out"]
    first = login.begin(sys.executable, "-m", "trainscale", *argv)
    first.wait_for("repeat 1: ")
    kept = login.trials("out")[0]
    job = read_job(login, "out")
    login.run("scancel", "--batch", f"--signal={name}", job)  # as Slurm does before the limit
    assert first.finish() == 130
    assert f"job {job} received a signal to end, as Slurm sends it shortly before the time limit" in first.output
    assert "the same command submits again and continues" in first.output
    assert "Deep MNIST" in first.output
    assert leaves_nothing(login)

    (login.folder / "mine.toml").write_text((login.folder / "mine.toml").read_text() + "# changed\n")
    done = login.trainscale(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trials are in the journal" in done.stdout
    records = login.trials("out")
    assert records[0] == kept
    assert sorted(record["repeat"] for record in records) == [0, 1, 2]
    assert all(record["status"] == "ok" for record in records)
    assert read_job(login, "out") != job


def test_ctrl_c_leaves_the_job_and_the_same_command_follows_it_again_until_it_is_cancelled(login: Login) -> None:
    argv = ["run", *QUICK, "--repeats", "9", "--launcher", "slurm", "--nodes", "1", "--time", "30"]
    first = login.begin(sys.executable, "-m", "trainscale", *argv)
    first.wait_for("runs on node1")
    first.popen.send_signal(signal.SIGINT)
    assert first.finish() == 130
    (output,) = (login.folder / "runs").iterdir()
    job = read_job(login, f"runs/{output.name}")
    assert f"job {job} goes on; the same command follows it again; to end it: scancel {job}" in first.output

    second = login.begin(sys.executable, "-m", "trainscale", *argv)
    second.wait_for(f"job {job} measures this already")
    second.wait_for("runs on node1")
    login.run("scancel", job)
    assert second.finish() == 130
    assert f"job {job} was cancelled; " in second.output
    assert "the same command submits again" in second.output
    assert leaves_nothing(login)


@pytest.mark.slow
def test_a_requeued_job_goes_on_from_its_journal_and_is_followed_on(login: Login) -> None:
    argv = ["run", *QUICK, "--repeats", "3", "--launcher", "slurm", "--nodes", "1", "--time", "30", "-o", "out"]
    first = login.begin(sys.executable, "-m", "trainscale", *argv)
    first.wait_for("repeat 1: ")
    kept = login.trials("out")[0]
    job = read_job(login, "out")
    login.run("scontrol", "requeue", job)
    first.wait_for(f"job {job} waits: BeginTime")
    login.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else after two minutes
    assert first.finish() == 0, first.output
    records = login.trials("out")
    assert records[0] == kept
    assert sorted(record["repeat"] for record in records) == [0, 1, 2]
    assert all(record["status"] == "ok" for record in records)
    assert first.output.count(f"job {job} runs on node1") == 2
    assert "continuing: " in first.output
    assert leaves_nothing(login)


def test_further_options_win_over_ours(login: Login) -> None:
    further = ["--sbatch=--no-requeue", "--sbatch=--oversubscribe", "--sbatch", "-c 2", "--sbatch=--comment=a; 'b'"]
    script = login.trainscale("run", *QUICK, "--launcher", "slurm", "--nodes", "1", *further, "--dry-run").stdout
    (login.folder / "script").write_text(script)
    job = login.run("sbatch", "--hold", "--parsable", "script").stdout.strip()
    shown = login.run("scontrol", "show", "job", job).stdout
    for value in ("Requeue=0", "OverSubscribe=YES", "CPUs/Task=2", "Comment=a; 'b'", f"WorkDir={login.folder}\n"):
        assert value in shown


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--partition=nonesuch", "invalid partition specified: nonesuch"),
        ("--sbatch=--nonesuch=1", "unrecognized option '--nonesuch=1'"),
        ("--sbatch=--nodelist=nonesuch", "Invalid node name specified"),
        ("--gres=nonesuch:1", "Invalid generic resource (gres) specification"),
    ],
)
def test_what_slurm_refuses_is_told_in_its_words_and_nothing_is_written(login: Login, flag: str, message: str) -> None:
    done = login.trainscale("run", *QUICK, "--launcher", "slurm", "--nodes", "1", flag, "-o", "a/b")
    assert done.returncode == 2
    assert "Slurm did not accept the job: " in done.stderr
    assert message in done.stderr
    assert list(login.folder.iterdir()) == []


def test_a_run_that_is_refused_inside_the_job_is_told_with_its_own_words(login: Login) -> None:
    argv = ["run", "--models", "no_such_module:build", "--launcher", "slurm", "--nodes", "1", "-o", "out"]
    done = login.trainscale(*argv)
    assert done.returncode == 2, done.stdout
    assert "no_such_module" in done.stderr
    assert f"(from {login.folder}/out/slurm/job-{read_job(login, 'out')}.log)" in done.stderr


def test_a_directory_that_the_nodes_do_not_see_is_told(login: Login, tmp_path: Path) -> None:
    done = login.trainscale("run", *QUICK, "--launcher", "slurm", "--nodes", "1", "-o", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "the nodes must see this directory too" in done.stderr


def test_a_slurm_that_does_not_answer_is_no_end_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\nNodeName=a\nPartitionName=b Nodes=ALL\n"
                    "MessageTimeout=1\nTCPTimeout=1\n")  # fmt: skip
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with pytest.raises(SlurmUnreachable, match="Unable to contact slurm controller"):
        read_status(SlurmJob("1"))


def test_a_job_that_slurm_has_forgotten_is_over(login: Login) -> None:
    script = "from trainscale.measure.submission import *; print(read_status(SlurmJob('999999')))"
    done = login.run(sys.executable, "-c", script)
    assert "FORGOTTEN" in done.stdout, done.stderr
