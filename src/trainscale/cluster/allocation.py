"""What a batch system or an mpirun gave to this process, whether its job still exists, and the launcher to choose."""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..spec.config import APART, BESIDE
from ..spec.devices import Host
from ..spec.experiment import Experiment
from ..spec.settings import SettingValues
from ..worker.frameworks.catalog import WITH_SERVERS
from .hosts import HostList

_SCONTROL_SECONDS = 30
_GPU = re.compile(r"(?:^|,)gpu(?::[^:(,]+)?:(\d+)")  # "gpu:2(IDX:0-1)", "gpu:a100:4(IDX:0-3)"


LOCAL, SSH, MPI, SLURM = "local", "ssh", "mpi", "slurm"  # launchers


def choose_launcher(experiment: Experiment, environment: Mapping[str, str], is_inside_mpi: bool = False) -> str:
    if experiment.resources.launcher:
        return experiment.resources.launcher
    if is_inside_mpi:
        return MPI
    if experiment.cluster.hosts:
        return SSH
    if is_inside_slurm(environment):
        return SLURM
    return MPI if environment.get("PBS_NODEFILE") else LOCAL


def find_allocated_hosts(environment: Mapping[str, str]) -> HostList | None:
    if is_inside_slurm(environment):
        nodes = environment["SLURM_JOB_NODELIST"]
        purpose = f"read the nodes of this job, {nodes}"
        names = run_scontrol(["show", "hostnames", nodes], purpose).split()
        if not names:
            raise InputError(f"scontrol cannot {purpose}: it names none")
        return HostList(tuple(map(Host, names)), f"Slurm job {environment['SLURM_JOB_ID']}")
    if environment.get("PBS_NODEFILE"):
        path = Path(environment["PBS_NODEFILE"])
        try:
            hosts = dict.fromkeys(path.read_text().split())  # it has one line for each slot
        except OSError as error:
            raise InputError(f"PBS_NODEFILE {path}: {error.strerror}") from None
        return HostList(tuple(map(Host, hosts)), f"PBS job {environment.get('PBS_JOBID', '')}")
    return None


# ---- Slurm


def is_inside_slurm(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"))


def read_gpus_per_host(environment: Mapping[str, str]) -> int:
    """Return the fewest GPUs of any host of this job, of which scontrol describes groups."""
    number = environment.get("SLURM_JOB_ID")
    if not number:
        return 0
    job = run_scontrol(["show", "job", "--details", "--oneliner", number], f"show job {number}")
    return min(map(count_gpus, re.findall(r" GRES=(\S*)", job)), default=0)


def count_gpus(gres: str) -> int:
    return sum(map(int, _GPU.findall(gres)))


def run_scontrol(arguments: list[str], purpose: str) -> str:
    try:
        command = ["scontrol", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SCONTROL_SECONDS)
    except OSError:
        raise InputError(f"inside a Slurm job, but there is no scontrol on the PATH to {purpose}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"scontrol cannot {purpose}: no answer within {_SCONTROL_SECONDS} s") from None
    if done.returncode:
        raise InputError(f"scontrol cannot {purpose}: {done.stderr.strip() or 'no message'}")
    return done.stdout


# ---- a job of Slurm: its state, and whether this process still belongs to it

FORGOTTEN = "FORGOTTEN"  # ours: Slurm no longer knows the job
_FINAL_STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", FORGOTTEN),
)
_WAITING_STATES = ("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_STATES_WITH_HOSTS = ("CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STOPPED", "SUSPENDED")
_ENDING = "COMPLETING"  # Slurm ends the processes of the job; the state after it is the reason
_ENDING_SECONDS = 2.0  # to wait for that state
_SILENT_TRIES, _SILENT_PAUSE = 3, 5.0  # a Slurm that is restarted answers again soon
_NOTHING = ("(null)", "None", "Unknown", "N/A")  # values that scontrol writes for none


@dataclass(frozen=True)
class JobStatus:
    state: str
    reason: str = ""
    start: str = ""  # expected, while it waits
    end: str = ""  # when its time limit is reached
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

    def describe_end(self) -> str:
        """Say what ended the job from outside; empty if it ended by itself."""
        limit = f"time limit of {self.time_limit}".removesuffix(" of ")
        if self.state == "FAILED" and self.exit_code == 130:
            return f"received a signal to end, as Slurm sends it shortly before the {limit}"
        return {
            "TIMEOUT": f"reached its {limit}",
            "CANCELLED": "was cancelled",
            "PREEMPTED": "had to make room for another job (PREEMPTED)",
            "NODE_FAIL": "lost a node (NODE_FAIL)",
            "BOOT_FAIL": "did not get its nodes started (BOOT_FAIL)",
            "DEADLINE": "reached its deadline",
            "REVOKED": "was revoked",
        }.get(self.state, "")


def parse_status(text: str) -> JobStatus:
    """Read what ``scontrol show job`` prints: ``JobId=12 JobState=PENDING Reason=Resources …``."""
    found = reversed(re.findall(r"(?:^|\s)(\w+)=(\S*)", text))  # of several, the first counts
    pairs = {key: "" if value in _NOTHING else value for key, value in found}
    exit_code, signal = parse_exit_code(pairs.get("ExitCode", ""))
    return JobStatus(
        state=pairs.get("JobState") or FORGOTTEN,
        reason=pairs.get("Reason", ""),
        start=pairs.get("StartTime", ""),
        end=pairs.get("EndTime", ""),
        nodes=pairs.get("NodeList", ""),
        time_limit=pairs.get("TimeLimit", ""),
        exit_code=exit_code,
        signal=signal,
        restarts=_read_number(pairs.get("Restarts", "")),
    )


def parse_exit_code(text: str) -> tuple[int, int]:
    """Return exit code and signal: ``0:15`` is signal 15."""
    code, _, signal = text.partition(":")
    return _read_number(code), _read_number(signal)


def _read_number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def count_restarts(environment: Mapping[str, str]) -> int:
    return _read_number(environment.get("SLURM_RESTART_COUNT", ""))


def find_end_of_own_job(environment: Mapping[str, str]) -> str:
    """Say why this process has no allocation of Slurm any more; empty while it has one.

    salloc lets its command outlive the job, and a host that is cut off does not hear of a requeue. A Slurm that does
    not answer starts nothing, so it ends an allocation too.
    """
    if not is_inside_slurm(environment):
        return ""
    number = environment["SLURM_JOB_ID"]
    status = _query_status(number)
    deadline = time.monotonic() + _ENDING_SECONDS
    while status is not None and status.state == _ENDING and time.monotonic() < deadline:
        time.sleep(0.25)
        status = _query_status(number)
    if status is None:
        return f"Slurm does not answer any more, so nothing can be started in job {number}"
    if status.restarts > count_restarts(environment):
        return f"job {number} was requeued, and this process belongs to an earlier start of it"
    if "T" in status.end and status.state == "RUNNING" and status.end <= time.strftime("%Y-%m-%dT%H:%M:%S"):
        status = replace(status, state="TIMEOUT")  # Slurm starts no steps any more, and ends the job within a minute
    if status.state in _STATES_WITH_HOSTS:
        return ""
    end = status.describe_end() or f"is {status.state}"
    if status.is_waiting:
        end = "was requeued"
    elif status.state == _ENDING and status.reason == "TimeLimit":
        end = "reached its time limit"
    elif status.state in (FORGOTTEN, _ENDING):
        end = "is over"
    return f"the allocation has ended: job {number} {end}"


def _query_status(number: str) -> JobStatus | None:
    for attempt in range(_SILENT_TRIES):
        if attempt:
            time.sleep(_SILENT_PAUSE)
        try:
            return parse_status(run_scontrol(["show", "job", "--oneliner", number], f"show job {number}"))
        except InputError as error:
            if "Invalid job id" in str(error):
                return JobStatus(FORGOTTEN)
    return None


# ---- inside an mpirun


@dataclass(frozen=True)
class MpiWorld:
    """``job`` differs between two mpiruns; empty where it is unknown."""

    rank: int
    size: int
    job: str = ""


# The variables with rank and size, of Open MPI and of MPICH.
_MPI_VARIABLES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def find_mpi_world(variables: Mapping[str, str]) -> MpiWorld | None:
    for rank, size in _MPI_VARIABLES:
        # srun sets the two variables of MPICH, too; MPICH's mpirun also sets MPI_LOCALRANKID.
        if rank == "PMI_RANK" and "MPI_LOCALRANKID" not in variables:
            continue
        try:
            world = int(variables[rank]), int(variables[size])
        except (KeyError, ValueError):
            continue
        job = variables.get("PMIX_NAMESPACE", "") or variables.get("OMPI_MCA_ess_base_jobid", "")
        if rank != "PMI_RANK":
            return MpiWorld(*world, job)
        # No variable of MPICH names the job, but all its parts find their mpirun by one address, which an ancestor has
        # on its command line.
        pid = "self"
        while pid != "0":
            try:
                pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except (OSError, IndexError):
                break
            if Path(argv[0]).name == "hydra_pmi_proxy" and "--control-port" in argv[:-1]:
                return MpiWorld(*world, argv[argv.index("--control-port") + 1])
        return MpiWorld(*world)
    return None


def is_inside_mpi(variables: Mapping[str, str]) -> bool:
    return any(rank in variables for rank, _ in _MPI_VARIABLES)


# ---- the older scripts

# Variables of the older Slurm scripts, and the settings that they mean.
_LEGACY_VARIABLES = {
    "TF_NUM_PS": "servers",
    "TF_NUM_WORKERS": "max_devices",
    "TF_PS_PER_NODE": "servers_per_host",
    "TF_WORKER_PER_NODE": "gpus_per_host",
    "TF_PS_IN_WORKER": "server_placement",
}
_PLACEMENTS = {**dict.fromkeys(("true", "1", "yes"), BESIDE), **dict.fromkeys(("false", "0", "no"), APART)}


def read_legacy_settings(environment: Mapping[str, str], explicit: Mapping[str, Any]) -> tuple[SettingValues, str]:
    """Return the settings that ``explicit`` lacks, and what was taken from where.

    TF_NUM_PS means the strategy ps, unless one is given.
    """
    strategies = [str(name).lower() for name in explicit.get("strategies") or ()]
    has_servers = any(name.partition(":")[0] in WITH_SERVERS for name in strategies)
    if not strategies:
        has_servers = bool(environment.get("TF_NUM_PS"))
    settings: SettingValues = {}
    variables, values = [], []
    for variable, key in _LEGACY_VARIABLES.items():
        text = environment.get(variable, "").strip().lower()
        if not text or key in explicit or (key == "max_devices" and "devices" in explicit):
            continue
        if key.startswith("server") and not has_servers:
            continue
        if key == "server_placement":
            if text not in _PLACEMENTS:
                raise InputError(f"{variable} {text!r}; valid: true or false")
            settings[key] = _PLACEMENTS[text]
        elif text.isdecimal() and int(text) >= 1:
            settings[key] = int(text)
        else:
            raise InputError(f"{variable} {text!r}; valid: a whole number, 1 or more")
        name = "devices per host" if key == "gpus_per_host" else key.replace("_", " ")
        values.append(f"{name} {settings[key]}")
        variables.append(variable)
    if has_servers and not strategies:
        settings["strategies"] = ("ps",)
        values.append("strategies ps")
    return settings, f"taken from {', '.join(variables)}: {', '.join(values)}"
