"""What Slurm says of a job, and whether the job that this process runs in still exists."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .allocation import is_inside_slurm

FORGOTTEN = "FORGOTTEN"  # ours: Slurm no longer knows the job
_FINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", FORGOTTEN),
)
_WAITING_STATES = ("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_STATES_WITH_HOSTS = ("CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STOPPED", "SUSPENDED")
_ENDING = "COMPLETING"  # Slurm ends the processes of the job; the state after it is the reason
_ENDING_SECONDS = 2.0  # to wait for that state
_ENDING_POLL_SECONDS = 0.25
_SILENT_TRIES, _SILENT_PAUSE = 3, 5.0  # a Slurm that is restarted answers again soon
_SECONDS = 30.0  # for one answer


@dataclass(frozen=True)
class JobStatus:
    state: str
    reason: str = ""
    start: str = ""  # expected, while it waits
    nodes: str = ""
    time_limit: str = ""
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in _FINAL_STATES

    @property
    def is_waiting(self) -> bool:
        return self.state in _WAITING_STATES

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"


def parse_status(text: str) -> JobStatus:
    """Read scontrol's «JobId=12 JobName=… JobState=PENDING Reason=Resources …»."""

    def read_value(key: str) -> str:
        match = re.search(rf"(?:^|\s){key}=(\S*)", text)
        return "" if match is None or match[1] in ("(null)", "None", "Unknown", "N/A") else match[1]

    exit_code, signal = parse_exit_code(read_value("ExitCode"))
    return JobStatus(
        state=read_value("JobState") or FORGOTTEN,
        reason=read_value("Reason"),
        start=read_value("StartTime"),
        nodes=read_value("NodeList"),
        time_limit=read_value("TimeLimit"),
        exit_code=exit_code,
        signal=signal,
        restarts=int(restarts) if (restarts := read_value("Restarts")).isdecimal() else 0,
    )


def parse_exit_code(text: str) -> tuple[int, int]:
    """Return the exit code and the signal: «2:0» is the exit code 2, «0:15» is the signal 15."""
    code, _, signal = text.partition(":")
    return int(code) if code.isdecimal() else 0, int(signal) if signal.isdecimal() else 0


def describe_end(status: JobStatus) -> str:
    """Say what ended a job from outside; the empty string means that it ended by itself."""
    limit = f" of {status.time_limit}" if status.time_limit else ""
    return {
        "TIMEOUT": f"reached its time limit{limit}",
        "CANCELLED": "was cancelled",
        "PREEMPTED": "had to make room for another job (PREEMPTED)",
        "NODE_FAIL": "lost a node (NODE_FAIL)",
        "BOOT_FAIL": "did not get its nodes started (BOOT_FAIL)",
        "DEADLINE": "reached its deadline",
        "REVOKED": "was revoked",
    }.get(status.state, "")


def count_restarts(environment: Mapping[str, str]) -> int:
    """Return how often Slurm had requeued the job of this process when this process started."""
    text = environment.get("SLURM_RESTART_COUNT", "")
    return int(text) if text.isdecimal() else 0


def was_requeued(environment: Mapping[str, str]) -> bool:
    return is_inside_slurm(environment) and count_restarts(environment) > 0


def find_end_of_own_job(environment: Mapping[str, str]) -> str:
    """Say why this process has no allocation of Slurm any more; empty while it has one, and where it never had one.

    A process may outlive its allocation: salloc lets its command go on, and a host that is cut off does not know that
    its job was requeued. A Slurm that does not answer starts nothing, so it ends an allocation, too.
    """
    if not is_inside_slurm(environment):
        return ""
    number = environment["SLURM_JOB_ID"]
    status = _query_status(number)
    deadline = time.monotonic() + _ENDING_SECONDS
    while status is not None and status.state == _ENDING and time.monotonic() < deadline:
        time.sleep(_ENDING_POLL_SECONDS)
        status = _query_status(number)
    if status is None:
        return f"Slurm does not answer any more, so nothing can be started in job {number}"
    if status.restarts > count_restarts(environment):
        return f"job {number} was requeued, and this process belongs to an earlier start of it"
    if status.state in _STATES_WITH_HOSTS:
        return ""
    return f"the allocation has ended: job {number} {_describe_own_end(status)}"


def _describe_own_end(status: JobStatus) -> str:
    if status.is_waiting:
        return "was requeued"
    if status.state == _ENDING and status.reason == "TimeLimit":
        return "reached its time limit"
    return describe_end(status) or ("is over" if status.state in (FORGOTTEN, _ENDING) else f"is {status.state}")


def _query_status(number: str) -> JobStatus | None:
    """Return the status of a job; None if Slurm stays silent."""
    for attempt in range(_SILENT_TRIES):
        if attempt:
            time.sleep(_SILENT_PAUSE)
        command = ["scontrol", "show", "job", "--oneliner", number]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return parse_status(done.stdout)
        if "Invalid job id" in done.stderr:
            return JobStatus(FORGOTTEN)
    return None
