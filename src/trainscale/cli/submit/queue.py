"""Talks to Slurm from a login node: hands a job in, asks what has become of it, asks what nodes there are."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...cluster.allocation import count_gpus
from ...errors import InputError, TrainscaleError
from .script import Batch

_SECONDS = 60
_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
_WAITS = ("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
FORGOTTEN = "FORGOTTEN"  # ours: Slurm no longer knows the job
# Variables that sbatch prefers to what stands in a script, where they are not called as the option is.
_OTHER_NAMES = {"--time": "SBATCH_TIMELIMIT", "--mem": "SBATCH_MEM_PER_NODE"}


class Unreachable(TrainscaleError):
    """Slurm does not answer now; it may later."""


@dataclass(frozen=True)
class SlurmJob:
    number: str
    cluster: str = ""  # where a login node serves several

    @property
    def cancel(self) -> str:
        return " ".join(["scancel", *self.at, self.number])

    @property
    def at(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []


@dataclass(frozen=True)
class JobStatus:
    state: str
    reason: str = ""
    start: str = ""  # expected, while it waits
    nodes: str = ""
    time_limit: str = ""
    exit_code: int = 0
    signal: int = 0

    @property
    def over(self) -> bool:
        return self.state in (*_OVER, FORGOTTEN)

    @property
    def waits(self) -> bool:
        return self.state in _WAITS

    @property
    def runs(self) -> bool:
        return self.state == "RUNNING"


def hand_in(batch: Batch, environment: Mapping[str, str] = os.environ) -> tuple[SlurmJob, str]:
    """The job, and whatever sbatch said besides. An InputError in Slurm's own words when it refuses."""
    ours = {_OTHER_NAMES.get(name, f"SBATCH_{name[2:].replace('-', '_').upper()}") for name in batch.names}
    kept = {name: value for name, value in environment.items() if name not in ours}
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"],
            input=batch.text,
            capture_output=True,
            text=True,
            env=kept,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        words = "launcher slurm: there is no sbatch on the PATH, so no job can be submitted from here"
        raise InputError(f"{words}; run this on a login node of the cluster, or use --hosts FILE for ssh") from None
    except subprocess.TimeoutExpired:
        raise TrainscaleError(
            f"sbatch did not answer within {_SECONDS} s; whether it took the job, squeue --me says"
        ) from None
    if done.returncode:
        raise InputError(
            f"Slurm did not take the job: {_plain(done.stderr) or f'exit code {done.returncode}, no message'}"
        )
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    return SlurmJob(number, cluster), _plain(done.stderr)


def status_of(job: SlurmJob) -> JobStatus:
    """``Unreachable`` when Slurm gives no answer."""
    done = _ask(["scontrol", *job.at, "show", "job", "--oneliner", job.number])
    if done.returncode == 0:
        return read_status(done.stdout)
    if "Invalid job id" not in done.stderr:
        raise Unreachable(f"Slurm does not answer: {_plain(done.stderr) or 'no message'}")
    # Over, and gone from the controller's memory; some sites keep accounts.
    done = _ask(["sacct", *job.at, "-X", "-n", "-P", "-j", job.number, "-o", "State,ExitCode"])
    state, _, code = done.stdout.strip().partition("|")
    if done.returncode or not state:
        return JobStatus(FORGOTTEN)
    exit_code, signal = _code(code)
    return JobStatus(state.split()[0], exit_code=exit_code, signal=signal)


def read_status(shown: str) -> JobStatus:
    """From scontrol's «JobId=12 JobName=… JobState=PENDING Reason=Resources …»."""

    def value(key: str) -> str:
        match = re.search(rf"(?:^|\s){key}=(\S*)", shown)
        text = match[1] if match else ""
        return "" if text in ("(null)", "None", "Unknown", "N/A") else text

    exit_code, signal = _code(value("ExitCode"))
    return JobStatus(
        state=value("JobState") or FORGOTTEN,
        reason=value("Reason"),
        start=value("StartTime"),
        nodes=value("NodeList"),
        time_limit=value("TimeLimit"),
        exit_code=exit_code,
        signal=signal,
    )


def nodes_have(partition: str | None) -> tuple[int, int] | None:
    """CPUs and GPUs of the largest node of a partition, or of all. None where Slurm does not say."""
    words = ["sinfo", "--noheader", "--format=%c|%G", *([f"--partition={partition}"] if partition else [])]
    try:
        done = _ask(words)
    except (Unreachable, InputError):
        return None
    found = [line.strip().split("|") for line in done.stdout.splitlines() if line.count("|") == 1]
    cpus = [int(digits[0]) for count, _ in found if (digits := re.findall(r"^\d+", count))]
    gpus = [count_gpus(gres) for _, gres in found]
    return (max(cpus), max(gpus)) if cpus else None


def _code(text: str) -> tuple[int, int]:
    """«2:0» is an exit code, «0:15» a signal."""
    code, _, signal = text.partition(":")
    return int(code) if code.isdecimal() else 0, int(signal) if signal.isdecimal() else 0


def _ask(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise InputError(f"there is no {words[0]} on the PATH; run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"Slurm does not answer: nothing from {words[0]} within {_SECONDS} s") from None


def _plain(complaint: str) -> str:
    """Slurm's words on one line, without its programs' names before each."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in complaint.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
