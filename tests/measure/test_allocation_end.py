"""A trial that fails because the cluster took its hosts back stays unmeasured, and no host is blamed for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import program

from trainscale.cluster import allocation
from trainscale.cluster.allocation import find_end_of_own_job
from trainscale.cluster.hosts import find_local_devices
from trainscale.errors import AllocationEnded
from trainscale.launch.connection import HostError, KeeperConnection
from trainscale.launch.launchers.base import Launcher
from trainscale.measure.context import RunContext, make_spec
from trainscale.measure.measure import RunListener, measure_plan
from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import read_machine

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node[1-2]"}


class LostLauncher(Launcher):
    """Its hosts cannot be reached."""

    name = "lost"

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        raise HostError(hosts[0], "no answer")

    def find_end(self) -> str:
        return self.end


@pytest.mark.parametrize("end", ["", "the allocation has ended"])
def test_only_a_host_that_still_belongs_to_the_run_is_recorded_as_lost(end: str, tmp_path: Path) -> None:
    experiment = Experiment.of(models=("mnist:8",), repeats=1, devices=(1,), strategies=("local",))
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    with open_journal(tmp_path / "out", RunInfo(make_spec(plan))) as journal:
        context = RunContext(plan, LostLauncher(end), {"torch": "python"})
        if end:
            with pytest.raises(AllocationEnded, match=end):
                measure_plan(context, journal, RunListener())
            assert journal.records == []
        else:
            measure_plan(context, journal, RunListener())
            assert [record.status for record in journal.records] == ["lost"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("answers", "end"),
    [
        (["JobState=RUNNING"], ""),
        (["JobState=SUSPENDED"], ""),
        (["JobState=COMPLETING", "JobState=CANCELLED"], "the allocation has ended: job 12 was cancelled"),
        (["JobState=TIMEOUT TimeLimit=00:01:00"], "job 12 reached its time limit of 00:01:00"),
        (["JobState=PENDING Reason=BeginTime"], "the allocation has ended: job 12 was requeued"),
        (["JobState=RUNNING Restarts=1"], "job 12 was requeued, and this process belongs to an earlier start of it"),
        (["fails: Invalid job id specified"], "the allocation has ended: job 12 is over"),
        (["fails: Unable to contact", "JobState=RUNNING"], ""),
        (["fails: Unable to contact"], "Slurm does not answer any more"),
    ],
)
def test_slurm_says_whether_this_process_still_has_its_hosts(
    answers: list[str], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, answer in enumerate(answers):
        (tmp_path / f"answer-{number}").write_text(f"JobId=12 {answer}")
    # It gives its answers in their order, and the last of them again and again.
    program(tmp_path, "scontrol", f'cd {tmp_path} && [ "$*" = "show job --oneliner 12" ] || exit 9\n'
            "answer=$(ls answer-* | head -1); text=$(cat $answer); [ $(ls answer-* | wc -l) = 1 ] || rm $answer\n"
            'case $text in *fails*) echo "$text" >&2; exit 1;; *) echo "$text";; esac')  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(allocation, "_SILENT_PAUSE", 0.0)
    reason = find_end_of_own_job(INSIDE)
    assert reason.startswith(end) or (end and end in reason)
    assert bool(reason) == bool(end)
    assert find_end_of_own_job({**INSIDE, "SLURM_RESTART_COUNT": "1"}).count("earlier start") == 0


def test_outside_of_slurm_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_end_of_own_job({}) == ""
