"""Tells which process of an mpirun this is, from the variables of Open MPI or MPICH."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MpiWorld:
    """``job`` is the same in all processes of one mpirun and differs between two; empty where it is unknown."""

    rank: int
    size: int
    job: str = ""


class MpiEnvironment(ABC):
    """Reads the variables of one implementation."""

    rank: str
    size: str

    def find_world(self, variables: Mapping[str, str]) -> MpiWorld | None:
        try:
            rank, size = int(variables[self.rank]), int(variables[self.size])
        except (KeyError, ValueError):
            return None
        return MpiWorld(rank, size, self.find_job(variables))

    @abstractmethod
    def find_job(self, variables: Mapping[str, str]) -> str: ...


class OpenMpiEnvironment(MpiEnvironment):
    rank, size = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"

    def find_job(self, variables: Mapping[str, str]) -> str:
        return variables.get("PMIX_NAMESPACE", "") or variables.get("OMPI_MCA_ess_base_jobid", "")


class MpichEnvironment(MpiEnvironment):
    rank, size = "PMI_RANK", "PMI_SIZE"

    def find_world(self, variables: Mapping[str, str]) -> MpiWorld | None:
        """Return None where only srun set the two variables; MPICH's mpirun also sets MPI_LOCALRANKID."""
        return super().find_world(variables) if "MPI_LOCALRANKID" in variables else None

    def find_job(self, variables: Mapping[str, str]) -> str:
        """Return the address by which all parts of a job find their mpirun; no variable names the job."""
        return _find_control_port(_read_ancestor_commands())


def find_mpi_world(variables: Mapping[str, str]) -> MpiWorld | None:
    """Return None outside of any mpirun."""
    for environment in (OpenMpiEnvironment(), MpichEnvironment()):
        world = environment.find_world(variables)
        if world is not None:
            return world
    return None


def is_inside_mpi(variables: Mapping[str, str]) -> bool:
    return any(environment.rank in variables for environment in (OpenMpiEnvironment, MpichEnvironment))


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
