"""What trainscale reads from the output of Slurm's programs. On a real Slurm: tests/cli/test_submit_to_slurm.py."""

from __future__ import annotations

from trainscale.cluster.slurm_job import JobStatus, parse_status
from trainscale.measure.submission.slurm import join_messages

SHOWN = (
    "JobId=26 JobName=a JobState=COMPLETED b UserId=root(0) JobState=PENDING Reason=ReqNodeNotAvail,_UnavailableNodes:x"
    " Dependency=(null) Requeue=1 Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:20:00 TimeMin=N/A"
    " StartTime=2026-11-15T17:00:00 EndTime=Unknown NodeList=(null)"
)


def test_the_state_of_a_job_is_read_from_scontrol() -> None:
    status = parse_status(SHOWN.replace("JobName=a JobState=COMPLETED b", "JobName=a"))
    assert status == JobStatus(
        "PENDING", "ReqNodeNotAvail,_UnavailableNodes:x", "2026-11-15T17:00:00", time_limit="00:20:00"
    )
    assert status.is_waiting
    done = parse_status("JobId=1 JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0 NodeList=node[1-2]")
    assert (done.is_over, done.exit_code, done.nodes) == (True, 2, "node[1-2]")
    assert parse_status("JobId=1 JobState=CANCELLED Reason=None ExitCode=0:15").signal == 15


def test_slurms_complaints_are_told_once_without_its_programs_names() -> None:
    stderr = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid\n"
    assert join_messages(stderr) == "invalid partition specified: x; Batch job submission failed: Invalid"
