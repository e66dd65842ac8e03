"""What a batch system or an mpirun gave to this process: hosts, GPUs, its place among the processes, and the settings
of the older Slurm scripts. The launcher of an experiment is chosen by it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..spec.devices import Host
from ..spec.experiment import Experiment
from ..spec.settings import SettingValues
from ..worker.frameworks.catalog import WITH_SERVERS
from .hosts import HostList

_SCONTROL_SECONDS = 30
_GPU = re.compile(r"(?:^|,)gpu(?::[^:(,]+)?:(\d+)")  # "gpu:2(IDX:0-1)", "gpu:a100:4(IDX:0-3)"


LOCAL, SSH, MPI, SLURM = "local", "ssh", "mpi", "slurm"


def choose_launcher(experiment: Experiment, environment: Mapping[str, str], is_inside_mpi: bool = False) -> str:
    """Return the name of the launcher that a person named; else ssh for a hosts file, that of the allocation, or
    local.
    """
    if experiment.resources.launcher:
        return experiment.resources.launcher
    if is_inside_mpi:
        return MPI
    if experiment.cluster.hosts:
        return SSH
    return find_batch_launcher(environment) or LOCAL


def find_batch_launcher(environment: Mapping[str, str]) -> str:
    """Return the launcher for the allocation that this process runs in; empty outside of any."""
    if is_inside_slurm(environment):
        return "slurm"
    return "mpi" if environment.get("PBS_NODEFILE") else ""


def find_allocated_hosts(environment: Mapping[str, str]) -> HostList | None:
    """Return the hosts that Slurm or PBS gave to this process; None outside of an allocation."""
    if is_inside_slurm(environment):
        hosts = tuple(Host(name) for name in expand_node_list(environment["SLURM_JOB_NODELIST"]))
        return HostList(hosts, f"Slurm job {environment['SLURM_JOB_ID']}")
    if environment.get("PBS_NODEFILE"):
        path = Path(environment["PBS_NODEFILE"])
        try:
            names = dict.fromkeys(path.read_text().split())  # it has one line for each slot
        except OSError as error:
            raise InputError(f"PBS_NODEFILE {path}: {error.strerror}") from None
        return HostList(tuple(Host(name) for name in names), f"PBS job {environment.get('PBS_JOBID', '')}")
    return None


def is_inside_slurm(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"))


def expand_node_list(nodes: str) -> list[str]:
    """Expand "node[1-3,7],login" to names, by Slurm's own program."""
    purpose = f"read the nodes of this job, {nodes}"
    names = _run_scontrol(["show", "hostnames", nodes], purpose).split()
    if not names:
        raise InputError(f"scontrol cannot {purpose}: it names none")
    return names


def read_gpus_per_host(environment: Mapping[str, str]) -> int:
    """Return how many GPUs this job has on every host. No variable says that for all ways of requesting GPUs."""
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return 0
    return parse_gpus_per_host(_run_scontrol(["show", "job", "--details", "--oneliner", job], f"show job {job}"))


def parse_gpus_per_host(job: str) -> int:
    """Return the smallest number of GPUs of any host, from scontrol's description of a job. It has a part such as
    "Nodes=node[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:2(IDX:0-1)" for each group of equal hosts.
    """
    return min(map(count_gpus, re.findall(r" GRES=(\S*)", job)), default=0)


def count_gpus(gres: str) -> int:
    """Count the GPUs in a list of generic resources as Slurm writes it."""
    return sum(map(int, _GPU.findall(gres)))


def _run_scontrol(arguments: list[str], purpose: str) -> str:
    try:
        done = subprocess.run(
            ["scontrol", *arguments], capture_output=True, text=True, check=False, timeout=_SCONTROL_SECONDS
        )
    except FileNotFoundError:
        raise InputError(f"inside a Slurm job, but there is no scontrol on the PATH to {purpose}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"scontrol cannot {purpose}: no answer within {_SCONTROL_SECONDS} s") from None
    if done.returncode:
        raise InputError(f"scontrol cannot {purpose}: {done.stderr.strip() or 'no message'}")
    return done.stdout


# ---- inside an mpirun


@dataclass(frozen=True)
class MpiWorld:
    """``job`` is the same in all processes of one mpirun and differs between two; empty where it is unknown."""

    rank: int
    size: int
    job: str = ""


# The variables with rank and size, of Open MPI and of MPICH.
_MPI_VARIABLES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def find_mpi_world(variables: Mapping[str, str]) -> MpiWorld | None:
    """Tell which process of an mpirun this is. Return None outside of any."""
    for rank, size in _MPI_VARIABLES:
        # srun sets the two variables of MPICH, too; MPICH's mpirun also sets MPI_LOCALRANKID.
        if rank == "PMI_RANK" and "MPI_LOCALRANKID" not in variables:
            continue
        try:
            world = int(variables[rank]), int(variables[size])
        except (KeyError, ValueError):
            continue
        if rank == "PMI_RANK":  # no variable names the job, but all its parts find their mpirun by one address
            return MpiWorld(*world, _find_control_port(_read_ancestor_commands()))
        return MpiWorld(*world, variables.get("PMIX_NAMESPACE", "") or variables.get("OMPI_MCA_ess_base_jobid", ""))
    return None


def is_inside_mpi(variables: Mapping[str, str]) -> bool:
    return any(rank in variables for rank, _ in _MPI_VARIABLES)


def _read_ancestor_commands() -> list[list[str]]:
    """Return the command lines of this process's parent, of its parent, and so on."""
    commands = []
    pid = "self"
    for _ in range(64):
        try:
            pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            commands.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
        except (OSError, IndexError):
            break
    return commands


def _find_control_port(commands: list[list[str]]) -> str:
    for argv in commands:
        if Path(argv[0]).name == "hydra_pmi_proxy" and "--control-port" in argv[:-1]:
            return argv[argv.index("--control-port") + 1]
    return ""


# ---- the older scripts

# Variables of the older Slurm scripts, and the settings that they mean.
_LEGACY_VARIABLES = {
    "TF_NUM_PS": "servers",
    "TF_NUM_WORKERS": "max_devices",
    "TF_PS_PER_NODE": "servers_per_host",
    "TF_WORKER_PER_NODE": "gpus_per_host",
    "TF_PS_IN_WORKER": "server_placement",
}
_SERVER_SETTINGS = ("servers", "servers_per_host", "server_placement")
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True)
class LegacySettings:
    """Settings, and the variables that they were taken from."""

    settings: SettingValues
    variables: tuple[str, ...]

    @property
    def description(self) -> str:
        names = {"max_devices": "max devices", "gpus_per_host": "devices per host"}
        values = [
            f"{names.get(key, key.replace('_', ' '))} {','.join(value) if isinstance(value, tuple) else value}"
            for key, value in self.settings.items()
        ]
        return f"taken from {', '.join(self.variables)}: {', '.join(values)}"


def read_legacy_settings(environment: Mapping[str, str], explicit: Mapping[str, Any]) -> LegacySettings:
    """Read the settings that neither a flag nor the experiment file (``explicit``) gives. TF_NUM_PS means the strategy
    ps, unless strategies are given.
    """
    strategies = [str(name).lower() for name in explicit.get("strategies") or ()]
    has_servers = (
        any(name.partition(":")[0] in WITH_SERVERS for name in strategies)
        if strategies
        else bool(environment.get("TF_NUM_PS"))
    )
    settings: SettingValues = {}
    variables = []
    for variable, key in _LEGACY_VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text or key in explicit or (key == "max_devices" and "devices" in explicit):
            continue
        if key in _SERVER_SETTINGS and not has_servers:
            continue
        settings[key] = _read_placement(text) if key == "server_placement" else _read_count(variable, text)
        variables.append(variable)
    if has_servers and not strategies:
        settings["strategies"] = ("ps",)
    return LegacySettings(settings, tuple(variables))


def _read_count(variable: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{variable} {text!r}; valid: a whole number, 1 or more")
    return int(text)


def _read_placement(text: str) -> str:
    if text.lower() not in (*_YES, *_NO):
        raise InputError(f"TF_PS_IN_WORKER {text!r}; valid: true or false")
    return "beside" if text.lower() in _YES else "apart"
