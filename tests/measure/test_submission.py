"""Runs as Slurm batch jobs: what decides it, the plan, the batch script, and what Slurm says."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainscale.cluster.allocation import JobStatus, parse_status
from trainscale.errors import InputError
from trainscale.measure.context import should_submit
from trainscale.measure.submission import (
    format_time,
    join_messages,
    make_script,
    parse_time,
    plan_for_nodes,
    quote_option,
)
from trainscale.spec.experiment import Experiment, make_experiment


def test_only_slurm_outside_of_a_job_with_nodes_submits() -> None:
    experiment = Experiment.of(launcher="slurm", nodes=2)
    assert should_submit(experiment, {})
    assert not should_submit(experiment, {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a"})
    assert not should_submit(Experiment(), {})
    assert not should_submit(Experiment.of(launcher="ray", nodes=2), {})
    with pytest.raises(InputError, match="partition: no job is submitted to Slurm here"):
        should_submit(Experiment.of(partition="p"), {})


@pytest.mark.processes
def test_a_plan_for_nodes_that_are_not_there_yet_finds_mistakes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonesuch")
    plan = plan_for_nodes(make_experiment({"nodes": 4, "device": "cuda", "gpus_per_host": 4, "models": ("alexnet",)}))
    assert (plan.available.kind, plan.available.devices_per_host) == ("cuda", [4, 4, 4, 4])
    assert list(plan.ladders.values()) == [(1, 2, 4, 8, 16)]
    with pytest.raises(InputError, match="20 workers need 5 hosts of 4 devices"):
        plan_for_nodes(make_experiment({"nodes": 4, "gpus_per_host": 4, "max_devices": 20}))


ODD = """it's; "odd" 100 % #1"""


def script_text(settings: dict[str, Any], flags: list[str] | None = None, directory: str = "/shared/runs/a") -> str:
    experiment = make_experiment({"launcher": "slurm", "nodes": 2, **settings})
    time = experiment.slurm.time or "1:00:00"
    return make_script(experiment, time, Path(directory), flags or [])


def test_the_batch_script_asks_for_whole_nodes_and_becomes_the_run() -> None:
    settings = {"nodes": 4, "partition": "p", "time": "2:00:00", "account": "a1", "gres": "gpu:h100:4"}
    assert (
        script_text(settings, ["--retry-failed"])
        == f"""\
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
#SBATCH --chdir={Path.cwd()}
#SBATCH --output=/shared/runs/a/slurm/job-%j.log
# Measures a whole sweep. If it is run again, it continues from its journal.
exec {sys.executable} -P -m trainscale run /shared/runs/a/slurm/experiment.toml --output /shared/runs/a --retry-failed
"""
    )


@pytest.mark.processes
def test_names_with_quotes_spaces_and_semicolons_stay_what_they_are() -> None:
    script = script_text({"sbatch": ("--comment=a b", "-C big", "--qos high")}, directory=f"/shared/{ODD}")
    lines = script.splitlines()
    assert r"""#SBATCH "--job-name=trainscale-it's; \"odd\" 100 % #1" """.strip() in lines
    assert r"""#SBATCH "--output=/shared/it's; \"odd\" 100 %% #1/slurm/job-%j.log" """.strip() in lines
    assert lines[-5:-2] == ['#SBATCH "--comment=a b"', "#SBATCH -Cbig", "#SBATCH --qos=high"]
    shell = lines[-1].replace(f"exec {sys.executable}", "printf '%s\\n'")
    argv = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    experiment_file = f"/shared/{ODD}/slurm/experiment.toml"
    assert argv == ["-P", "-m", "trainscale", "run", experiment_file, "--output", f"/shared/{ODD}"]


def test_what_a_script_asks_for_follows_from_the_settings() -> None:
    assert "#SBATCH --gres=gpu:4\n" in script_text({"device": "cuda", "gpus_per_host": 4})
    assert "#SBATCH --gres=gpu:a:2\n" in script_text({"device": "cuda", "gpus_per_host": 4, "gres": "gpu:a:2"})
    assert "gres" not in script_text({"gpus_per_host": 4})
    assert "--mem=0" not in script_text({"sbatch": ("--mem-per-cpu=2G",)})
    assert "--signal" in script_text({"time": "10"})
    assert "--signal" in script_text({"time": "UNLIMITED"})
    assert "--signal" not in script_text({"time": "9:59"})
    assert quote_option("a\\b") == r'"a\\b"'
    with pytest.raises(InputError, match="a path with a backslash"):
        script_text({}, directory="/shared/a\\b")
    with pytest.raises(InputError, match="line break"):
        quote_option("--output=a\nb")
    with pytest.raises(InputError, match="--sbatch: 'qos=high' is not an option"):
        script_text({"sbatch": ("qos=high",)})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("1-2:30:15", 95415)],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds
    assert parse_time(format_time(seconds)) == seconds


def test_times_that_slurm_would_not_understand_are_named() -> None:
    assert parse_time("infinite") is None
    for text in ("2h", "", "1:2:3:4", "0"):
        with pytest.raises(InputError, match=re.escape(f"--time: {text!r}")):
            parse_time(text)


SHOWN = (
    "JobId=26 JobName=a JobState=COMPLETED b UserId=root(0) JobState=PENDING Reason=ReqNodeNotAvail,_UnavailableNodes:x"
    " Dependency=(null) Requeue=1 Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:20:00 TimeMin=N/A"
    " StartTime=2026-11-15T17:00:00 EndTime=Unknown NodeList=(null)"
)


def test_what_scontrol_and_sbatch_print_is_read() -> None:
    status = parse_status(SHOWN.replace("JobName=a JobState=COMPLETED b", "JobName=a"))
    assert status == JobStatus(
        "PENDING", "ReqNodeNotAvail,_UnavailableNodes:x", "2026-11-15T17:00:00", time_limit="00:20:00"
    )
    assert status.is_waiting
    done = parse_status("JobId=1 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0 NodeList=node[1-2]")
    assert (done.is_over, done.exit_code, done.nodes) == (True, 2, "node[1-2]")
    assert parse_status("JobId=1 JobState=CANCELLED Reason=None ExitCode=0:15").signal == 15
    stderr = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    assert join_messages(stderr) == "invalid partition specified: x; Batch job submission failed: Invalid"
