"""A sweep as one batch job: its script to the letter, and what is made of Slurm's words. On a real Slurm:
test_submit_to_slurm.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainscale import cli
from trainscale.cli.submit import _finish, _stopped, imagine, wanted
from trainscale.cli.submit.follow import Followed as Submitted
from trainscale.cli.submit.queue import JobStatus, SlurmJob, _plain, read_status
from trainscale.cli.submit.script import inner_words, make_batch, quoted, read_time, slurm_time
from trainscale.errors import InputError
from trainscale.launch.launchers.slurm import SlurmSettings
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, LOST, MISSING, OK, Failure, RankSample, TrialRecord
from trainscale.run.measure import spec_of
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment, make
from trainscale.spec.plan import Plan

ODD = """it's; "odd" 100 % #1"""


@pytest.fixture(autouse=True)
def _outside_of_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM", "TF_"))]:
        monkeypatch.delenv(name)


# ---- the script


def batch(settings: dict[str, Any], words: list[str], directory: str = "/shared/runs/a") -> str:
    experiment = make({"launcher": "slurm", "nodes": 2, **settings}, launcher_groups=(SlurmSettings,))
    places = {"directory": Path(directory), "folder": Path("/home/me"), "python": "/venv/bin/python"}
    return make_batch(experiment, words, experiment.settings_of(SlurmSettings).time or "1:00:00", **places).text


def test_the_batch_script_asks_for_whole_nodes_and_becomes_the_run() -> None:
    settings = {"nodes": 4, "partition": "p", "time": "2:00:00", "account": "a1", "gres": "gpu:h100:4"}
    words = ["--models", "mnist:8", "--launcher", "slurm", "--nodes", "4", "--partition", "p", "--time", "2:00:00",
             "--account=a1", "--gres", "gpu:h100:4", "-o", "runs/a", "--retry-failed"]  # fmt: skip
    assert (
        batch(settings, words)
        == """\
#!/bin/bash
#SBATCH --job-name=trainscale-a
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --partition=p
#SBATCH --account=a1
#SBATCH --gres=gpu:h100:4
#SBATCH --time=2:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir=/home/me
#SBATCH --output=/shared/runs/a/slurm/job-%j.log
# Measures a whole sweep. Run again, it goes on from its journal.
exec /venv/bin/python -P -m trainscale run --models mnist:8 --launcher slurm --retry-failed --output /shared/runs/a
"""
    )


def test_names_with_quotes_spaces_and_semicolons_stay_what_they_are() -> None:
    settings = {"sbatch": ("--comment=a b", "-C big", "--qos high"), "setup": ("module load 'a b'; x",)}
    words = ["--setup", "module load 'a b'; x", "--models=a;b"]
    script = batch(settings, words, f"/shared/{ODD}")
    lines = script.splitlines()
    assert r"""#SBATCH "--job-name=trainscale-it's; \"odd\" 100 % #1" """.strip() in lines
    assert r"""#SBATCH "--output=/shared/it's; \"odd\" 100 %% #1/slurm/job-%j.log" """.strip() in lines
    assert lines[-5:-2] == ['#SBATCH "--comment=a b"', "#SBATCH -Cbig", "#SBATCH --qos=high"]
    shell = lines[-1].replace("exec /venv/bin/python", "printf '%s\\n'")
    said = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["-P", "-m", "trainscale", "run", *words, "--output", f"/shared/{ODD}"]


def test_what_a_script_cannot_say_is_refused() -> None:
    assert quoted("a\\b") == r'"a\\b"'
    with pytest.raises(InputError, match="a path with a backslash"):
        batch({}, [], "/shared/a\\b")
    with pytest.raises(InputError, match="line break"):
        quoted("--output=a\nb")
    with pytest.raises(InputError, match="--sbatch: 'qos=high' is not an option"):
        batch({"sbatch": ("qos=high",)}, [])


def test_gpus_are_asked_for_by_the_devices_of_a_host_unless_gres_says_it() -> None:
    assert "#SBATCH --gres=gpu:4\n" in batch({"device": "cuda", "gpus_per_host": 4}, [])
    assert "#SBATCH --gres=gpu:a:2\n" in batch({"device": "cuda", "gpus_per_host": 4, "gres": "gpu:a:2"}, [])
    assert "gres" not in batch({"gpus_per_host": 4}, [])


def test_memory_that_is_asked_for_otherwise_is_not_asked_for_twice() -> None:
    assert "--mem=0" not in batch({"sbatch": ("--mem-per-cpu=2G",)}, [])


def test_a_short_job_is_not_told_to_end_before_its_limit() -> None:
    assert "--signal" in batch({"time": "10"}, [])
    assert "--signal" in batch({"time": "UNLIMITED"}, [])
    assert "--signal" not in batch({"time": "9:59"}, [])


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--nodes", "4", "-x", "8"], ["-x", "8"]),
        (["--nodes=4", "-x8", "-oout", "--fresh", "--dry-run"], ["-x8"]),
        (["--sbatch", "--nodes"], []),
        (["--sbatch=--constraint=a", "--setup=--nodes"], ["--setup=--nodes"]),
        (["mine.toml", "--models", "mine.toml"], ["/d/slurm/experiment.toml", "--models", "mine.toml"]),
        (["--compile", "mine.toml", "--no-parity"], ["--compile", "/d/slurm/experiment.toml", "--no-parity"]),
        (["--retry-failed", "--", "mine.toml"], ["--retry-failed", "/d/slurm/experiment.toml"]),
    ],
)
def test_the_job_gets_the_same_words_without_those_of_the_submission(words: list[str], kept: list[str]) -> None:
    assert inner_words(words, Path("/d")) == kept


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("1-2:30:15", 95415)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    assert read_time(text) == seconds
    assert read_time(slurm_time(seconds)) == seconds


def test_times_that_slurm_would_not_understand_are_named() -> None:
    assert read_time("infinite") is None
    for text in ("2h", "", "1:2:3:4", "0"):
        with pytest.raises(InputError, match=re.escape(f"--time: {text!r}")):
            read_time(text)


# ---- whether to submit


def test_only_slurm_outside_of_a_job_with_nodes_submits() -> None:
    asked = Experiment.of(launcher="slurm", nodes=2)
    assert wanted(asked, {})
    assert not wanted(asked, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a"})
    assert not wanted(Experiment(), {})
    assert not wanted(Experiment.of(launcher="ray", nodes=2), {})
    with pytest.raises(InputError, match="partition: nobody asks Slurm"):
        wanted(Experiment.of((SlurmSettings,), partition="p"), {})


def test_a_plan_for_nodes_that_are_not_there_yet_finds_mistakes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonesuch")
    plan = imagine(make({"nodes": 4, "device": "cuda", "gpus_per_host": 4, "models": ("alexnet",)}))
    assert (plan.supply.kind, plan.supply.shape) == ("cuda", [4, 4, 4, 4])
    assert plan.ladders == ((1, 2, 4, 8, 16),)
    with pytest.raises(InputError, match="20 workers need 5 hosts of 4 devices"):
        imagine(make({"nodes": 4, "gpus_per_host": 4, "max_devices": 20}))


def test_a_dry_run_prints_the_script_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "/nonesuch")
    monkeypatch.setenv("TF_NUM_WORKERS", "2")  # of which a line is told, but not in the script
    words = ["run", "--models", "mnist:8", "--launcher", "slurm", "--nodes", "2", "--budget", "30m", "--dry-run"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("#!/bin/bash\n#SBATCH --job-name=trainscale-mnist-")
    assert "#SBATCH --time=1:10:00\n" in said  # twice the budget, and what comes before the first trial
    assert f"#SBATCH {quoted(f'--chdir={folder}')}\n" in said
    (command,) = (line for line in said.splitlines() if line.startswith("exec "))
    assert "--models mnist:8 --launcher slurm --budget 30m --output" in command
    assert list(folder.iterdir()) == []


def test_a_dry_run_of_nothing_to_submit_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--models", "mnist:8", "--dry-run"]) == 2
    assert "nothing would be submitted here" in capsys.readouterr().err


def test_without_sbatch_it_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonesuch")
    assert cli.main(["run", "--models", "mnist:8", "--launcher", "slurm", "--nodes", "2"]) == 2
    assert "there is no sbatch on the PATH" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---- what Slurm says

SHOWN = (
    "JobId=26 JobName=a JobState=COMPLETED b UserId=root(0) JobState=PENDING Reason=ReqNodeNotAvail,_UnavailableNodes:x"
    " Dependency=(null) Requeue=1 Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:20:00 TimeMin=N/A"
    " StartTime=2026-11-15T17:00:00 EndTime=Unknown NodeList=(null)"
)


def test_the_state_of_a_job_is_read_from_scontrol() -> None:
    status = read_status(SHOWN.replace("JobName=a JobState=COMPLETED b", "JobName=a"))
    assert status == JobStatus(
        "PENDING", "ReqNodeNotAvail,_UnavailableNodes:x", "2026-11-15T17:00:00", time_limit="00:20:00"
    )
    assert status.waits
    done = read_status("JobId=1 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0 NodeList=node[1-2]")
    assert (done.over, done.exit_code, done.nodes) == (True, 2, "node[1-2]")
    assert read_status("JobId=1 JobState=CANCELLED Reason=None ExitCode=0:15").signal == 15


def test_slurms_complaints_are_told_once_without_its_programs_names() -> None:
    said = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    assert _plain(said) == "invalid partition specified: x; Batch job submission failed: Invalid"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (JobStatus("TIMEOUT", time_limit="00:20:00"), "reached its time limit of 00:20:00"),
        (JobStatus("CANCELLED"), "was cancelled"),
        (JobStatus("PREEMPTED"), "PREEMPTED"),
        (JobStatus("NODE_FAIL"), "lost a node"),
        (JobStatus("FAILED", exit_code=130), "told to end"),
        (JobStatus("FAILED", exit_code=1), ""),
        (JobStatus("OUT_OF_MEMORY"), ""),
    ],
)
def test_a_job_that_was_ended_from_outside_is_told_from_one_that_failed(status: JobStatus, words: str) -> None:
    assert words in _stopped(status)
    assert bool(words) == bool(_stopped(status))


# ---- a run that goes on elsewhere


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("PATH", "/nonesuch")
    return imagine(make({"nodes": 2, "gpus_per_host": 1, "cores_per_device": 1, "models": ("mnist:8",), "repeats": 2}))


@pytest.fixture
def journal(plan: Plan, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "run", RunInfo(spec_of(plan))) as journal:
        yield journal


def record(trial: Trial, status: str = OK) -> TrialRecord:
    ranks = (RankSample(rank=0, host="node1", samples=8, window_seconds=1.0, step_seconds=(0.5, 0.5)),)
    failure = None if status == OK else Failure(status, "a reason")
    return TrialRecord(trial, status, "2026-01-01", 2.0, ranks=ranks if status == OK else (), failure=failure)


def test_what_is_under_way_is_known_from_the_journal(plan: Plan, journal: Journal) -> None:
    run = Submitted(journal.directory, plan, retry_failed=False)
    assert run.begun
    for trial in plan.trials():
        step = run.next_trial()
        assert step is not None
        assert step.trial == trial
        assert not run.complete
        journal.append(record(trial))
        assert run.has_news
        assert [one.trial for one in run.look()] == [trial]
        assert run.look() == []
    assert run.complete


def test_a_run_that_has_not_begun_is_not_complete(plan: Plan, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "none", plan, retry_failed=False)
    assert [run.begun, run.complete, run.all_measured, run.has_news] == [False] * 4


def test_trials_to_be_tried_again_are_not_complete_until_they_were(plan: Plan, journal: Journal) -> None:
    first, *others = plan.trials()
    for trial in others:
        journal.append(record(trial))
    journal.append(record(first, CRASH))
    assert Submitted(journal.directory, plan, retry_failed=False).complete
    run = Submitted(journal.directory, plan, retry_failed=True)
    assert not run.complete
    assert run.all_measured
    journal.append(record(first))
    run.look()
    assert run.complete


def test_frameworks_that_are_missing_are_not_waited_for(plan: Plan, journal: Journal) -> None:
    for trial in plan.round(0):
        journal.append(record(trial, MISSING))
    assert Submitted(journal.directory, plan, retry_failed=False).complete


@pytest.mark.parametrize(
    ("last", "status", "code", "words"),
    [
        (OK, JobStatus("COMPLETED"), 0, ""),
        (CRASH, JobStatus("FAILED", exit_code=1), 1, ""),
        (OK, JobStatus("TIMEOUT"), 0, ""),  # it had measured all before
        (OK, JobStatus("OUT_OF_MEMORY", signal=125), 0, ""),  # one of its ranks had, and that is in the journal
        (
            None,
            JobStatus("TIMEOUT", time_limit="1:00"),
            130,
            "time limit of 1:00; 3 finished trials are kept; the same",
        ),
        (None, JobStatus("FAILED", exit_code=2), 2, "job 7 ended (FAILED, exit code 2)"),
        (None, JobStatus("FORGOTTEN"), 1, "Slurm has forgotten how it ended"),
    ],
)
def test_the_exit_code_is_that_of_the_run_where_it_came_to_its_end(
    last: str | None, status: JobStatus, code: int, words: str, plan: Plan, journal: Journal,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    *first, final = plan.trials()
    for trial in first:
        journal.append(record(trial))
    if last:
        journal.append(record(final, last))
    assert _finish(SlurmJob("7"), status, Submitted(journal.directory, plan, retry_failed=False)) == code
    said = capsys.readouterr()
    assert "Deep MNIST" in said.out
    assert words in said.out + said.err
    assert bool(words) == ("job 7" in said.out + said.err)
    assert (journal.directory / "report.html").exists()


def test_what_was_lost_with_a_node_can_be_tried_again(
    plan: Plan, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.append(record(plan.trials()[0], LOST))
    assert _finish(SlurmJob("7"), JobStatus("NODE_FAIL"), Submitted(journal.directory, plan, retry_failed=False)) == 130
    assert "1 finished trial is kept" in (said := capsys.readouterr().out)
    assert "--retry-failed tries again what was lost" in said
