"""What a person sees who submits a sweep as one batch job. On a real Slurm: test_submit_to_slurm.py."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from watched_runs import plan_of_two_nodes, submitted_record

from trainscale import cli
from trainscale.cli.submit import finish
from trainscale.cluster.allocation import JobStatus
from trainscale.measure.context import make_spec
from trainscale.measure.submission import SlurmJob, quote_option
from trainscale.measure.watching import FollowedRun
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, LOST, OK
from trainscale.report import outputs
from trainscale.runs import Run
from trainscale.spec.plan import Plan

ODD = """it's; "odd" 100 % #1"""

pytestmark = pytest.mark.usefixtures("outside_of_any_job")


@pytest.mark.processes
def test_a_dry_run_prints_the_script_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "/nonesuch")
    monkeypatch.setenv("TF_NUM_WORKERS", "2")  # a line on standard error names it; the script does not
    argv = ["run", "--models", "mnist:8", "--launcher", "slurm", "--nodes", "2", "--budget", "30m", "--dry-run"]
    assert cli.main(argv) == 0
    printed = capsys.readouterr()
    script = printed.out
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=trainscale-mnist-")
    assert "#SBATCH --time=1:10:00\n" in script  # twice the budget, and what comes before the first trial
    assert f"#SBATCH {quote_option(f'--chdir={folder}')}\n" in script
    (command,) = (line for line in script.splitlines() if line.startswith("exec "))
    assert "/slurm/experiment.toml" in shlex.split(command)[6]
    assert 'models = ["mnist:8"]\n' in printed.err
    assert "budget = 1800.0\n" in printed.err
    assert "max_devices = 2\n" in printed.err
    assert list(folder.iterdir()) == []


@pytest.mark.processes
def test_without_sbatch_it_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonesuch")
    assert cli.main(["run", "--models", "mnist:8", "--launcher", "slurm", "--nodes", "2"]) == 2
    assert "there is no sbatch on the PATH" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("PATH", "/nonesuch")
    return plan_of_two_nodes()


@pytest.fixture
def journal(plan: Plan, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "run", RunInfo(make_spec(plan))) as journal:
        yield journal


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Directories and numbers of records of the reports that would be written. Drawing takes a second."""
    written: list[tuple[Path, int]] = []

    def note(directory: Path, runs: Sequence[Run], _: object) -> str:
        written.append((directory, len(runs[0].records)))
        return ""

    monkeypatch.setattr(outputs, "write_report", note)
    return written


@pytest.mark.processes
@pytest.mark.parametrize(
    ("last", "status", "code", "message"),
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
        (None, JobStatus("CANCELLED"), 130, "was cancelled"),
        (None, JobStatus("PREEMPTED"), 130, "PREEMPTED"),
        (None, JobStatus("NODE_FAIL"), 130, "lost a node"),
        (None, JobStatus("FAILED", exit_code=130), 130, "received a signal to end"),
        (None, JobStatus("FAILED", exit_code=2), 2, "job 7 ended (FAILED, exit code 2)"),
        (None, JobStatus("FORGOTTEN"), 1, "Slurm has forgotten how it ended"),
    ],
)
def test_the_exit_code_is_that_of_the_run_where_it_came_to_its_end(
    last: str | None, status: JobStatus, code: int, message: str, plan: Plan, journal: Journal,
    reports: list[tuple[Path, int]], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    *first, final = plan.list_trials()
    for trial in first:
        journal.append(submitted_record(trial))
    if last:
        journal.append(submitted_record(final, last))
    run = FollowedRun(journal.directory, plan, retry_failed=False)
    assert finish(SlurmJob("7"), status, run) == code
    output = capsys.readouterr()
    assert "Deep MNIST" in output.out
    assert message in output.out + output.err
    assert bool(message) == ("job 7" in output.out + output.err)
    assert reports == [(journal.directory, 4 if last else 3)]


@pytest.mark.processes
def test_what_was_lost_with_a_node_can_be_tried_again(
    plan: Plan, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.append(submitted_record(plan.list_trials()[0], LOST))
    run = FollowedRun(journal.directory, plan, retry_failed=False)
    assert finish(SlurmJob("7"), JobStatus("NODE_FAIL"), run) == 130
    output = capsys.readouterr().out
    assert "1 finished trial is kept" in output
    assert "--retry-failed repeats the lost trials" in output
    assert (journal.directory / "report.html").exists()


@pytest.mark.processes
@pytest.mark.parametrize("flags", [[], ["--summary-line"]])
def test_a_run_that_is_complete_is_shown_and_no_job_is_submitted(
    flags: list[str], plan: Plan, journal: Journal, reports: list[tuple[Path, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    for trial in plan.list_trials():
        journal.append(submitted_record(trial))
    settings = ["-m", "mnist:8", "-g", "1", "--cores-per-device", "1", "--repeats", "2"]
    submission = ["--launcher", "slurm", "--nodes", "2", "-o", str(journal.directory), *flags]
    assert cli.main(["run", *settings, *submission]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all 4 trials are in the journal already; --fresh measures anew"
    assert ("trials: 4 trials" in lines) == bool(flags)
    assert reports == [(journal.directory, 4)]
