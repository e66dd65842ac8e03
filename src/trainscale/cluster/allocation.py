"""The hosts that a batch system gave to this process: Slurm's, PBS's. Read from their variables."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .hosts import Host


@dataclass(frozen=True)
class Allocation:
    launcher: str
    hosts: tuple[Host, ...]
    words: str


def find(environment: Mapping[str, str]) -> Allocation | None:
    """None outside of any."""
    if environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"):
        job, nodes = environment["SLURM_JOB_ID"], environment["SLURM_JOB_NODELIST"]
        hosts = tuple(Host(name) for name in expand(nodes))
        return Allocation("slurm", hosts, f"Slurm job {job}")
    if environment.get("PBS_NODEFILE"):
        path = Path(environment["PBS_NODEFILE"])
        try:
            names = dict.fromkeys(path.read_text().split())  # one line a slot
        except OSError as error:
            raise InputError(f"PBS_NODEFILE {path}: {error.strerror}") from None
        return Allocation("mpi", tuple(Host(name) for name in names), f"PBS job {environment.get('PBS_JOBID', '')}")
    return None


def expand(nodes: str) -> list[str]:
    """«node[1-3,7],login» → names, by Slurm's own program."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True, timeout=30
        )
    except FileNotFoundError:
        raise InputError("inside a Slurm job, but there is no scontrol on the PATH to read its hosts with") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise InputError(f"scontrol cannot read the nodes of this job, {nodes}: {error}") from None
    return done.stdout.split()
