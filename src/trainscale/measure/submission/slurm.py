"""Calls Slurm's programs on a login node: submits a job, asks for its status, and asks what nodes there are."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from ...cluster.allocation import count_gpus
from ...cluster.slurm_job import FORGOTTEN, JobStatus, parse_exit_code, parse_status
from ...errors import InputError, TrainscaleError
from .script import BatchScript

_TIMEOUT_SECONDS = 60
# sbatch prefers these variables to the options in a script. The names of most follow from the option.
_VARIABLES = {"--time": "SBATCH_TIMELIMIT", "--mem": "SBATCH_MEM_PER_NODE"}


class SlurmUnreachable(TrainscaleError):
    """Slurm does not answer now; it may answer later."""


@dataclass(frozen=True)
class SlurmJob:
    number: str
    cluster: str = ""  # where a login node serves several

    @property
    def cancel_command(self) -> str:
        return " ".join(["scancel", *self.cluster_option, self.number])

    @property
    def cluster_option(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []


def submit_script(script: BatchScript) -> tuple[SlurmJob, str]:
    """Return the job and sbatch's warnings. An InputError repeats Slurm's message when it refuses the job."""
    overriding = {_VARIABLES.get(name, f"SBATCH_{name[2:].replace('-', '_').upper()}") for name in script.option_names}
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"],
            input=script.text,
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if name not in overriding},
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        message = "launcher slurm: there is no sbatch on the PATH, so no job can be submitted from here"
        raise InputError(f"{message}; run this on a login node of the cluster, or use --hosts FILE for ssh") from None
    except subprocess.TimeoutExpired:
        raise TrainscaleError(
            f"sbatch did not answer within {_TIMEOUT_SECONDS} s; squeue --me shows whether it accepted the job"
        ) from None
    if done.returncode:
        reason = join_messages(done.stderr) or f"exit code {done.returncode}, no message"
        raise InputError(f"Slurm did not accept the job: {reason}")
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    return SlurmJob(number, cluster), join_messages(done.stderr)


def read_status(job: SlurmJob) -> JobStatus:
    """Ask Slurm for the status of a job. ``SlurmUnreachable`` is raised when Slurm does not answer."""
    done = _call(["scontrol", *job.cluster_option, "show", "job", "--oneliner", job.number])
    if done.returncode == 0:
        return parse_status(done.stdout)
    if "Invalid job id" not in done.stderr:
        raise SlurmUnreachable(f"Slurm does not answer: {join_messages(done.stderr) or 'no message'}")
    # The job is over and the controller has forgotten it; some sites keep accounts.
    done = _call(["sacct", *job.cluster_option, "-X", "-n", "-P", "-j", job.number, "-o", "State,ExitCode"])
    state, _, code = done.stdout.strip().partition("|")
    if done.returncode or not state:
        return JobStatus(FORGOTTEN)
    exit_code, signal = parse_exit_code(code)
    return JobStatus(state.split()[0], exit_code=exit_code, signal=signal)


def find_largest_node(partition: str | None) -> tuple[int, int] | None:
    """Return the most CPUs and GPUs of a node of a partition, or of all. None where Slurm does not say."""
    partition_option = [f"--partition={partition}"] if partition else []
    try:
        done = _call(["sinfo", "--noheader", "--format=%c|%G", *partition_option])
    except (SlurmUnreachable, InputError):
        return None
    nodes = [line.strip().split("|") for line in done.stdout.splitlines() if line.count("|") == 1]
    cpus = [int(digits[0]) for count, _ in nodes if (digits := re.findall(r"^\d+", count))]
    gpus = [count_gpus(gres) for _, gres in nodes]
    return (max(cpus), max(gpus)) if cpus else None


def _call(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        raise InputError(f"there is no {argv[0]} on the PATH; run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        message = f"Slurm does not answer: nothing from {argv[0]} within {_TIMEOUT_SECONDS} s"
        raise SlurmUnreachable(message) from None


def join_messages(stderr: str) -> str:
    """Return Slurm's messages on one line, each once, without the names of its programs."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
