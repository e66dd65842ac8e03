"""Inside mpirun: which of its processes this is, read from its variables; a small class for Open MPI and for MPICH."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# What an mpirun sets for the processes of its job.
WORLD_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "HYDI_")


@dataclass(frozen=True)
class MpiWorld:
    """``job`` is the same in all processes of one mpirun, and another in another; empty where it cannot be told."""

    rank: int
    size: int
    job: str = ""


class MpiEnvironment(ABC):
    """Reads one implementation's variables."""

    rank: str
    size: str

    def world(self, variables: Mapping[str, str]) -> MpiWorld | None:
        try:
            rank, size = int(variables[self.rank]), int(variables[self.size])
        except (KeyError, ValueError):
            return None
        return MpiWorld(rank, size, self.job(variables))

    @abstractmethod
    def job(self, variables: Mapping[str, str]) -> str: ...


class OpenMpiEnvironment(MpiEnvironment):
    rank, size = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"

    def job(self, variables: Mapping[str, str]) -> str:
        return variables.get("PMIX_NAMESPACE", "") or variables.get("OMPI_MCA_ess_base_jobid", "")


class MpichEnvironment(MpiEnvironment):
    rank, size = "PMI_RANK", "PMI_SIZE"

    def world(self, variables: Mapping[str, str]) -> MpiWorld | None:
        """Slurm's srun sets the same two; it is MPICH's own mpirun that also says which process of a host this is."""
        return super().world(variables) if "MPI_LOCALRANKID" in variables else None

    def job(self, variables: Mapping[str, str]) -> str:
        """No variable says it, but the address on which all parts of a job find their mpirun: their common word."""
        return _control_port(_ancestors())


def find_mpi_world(variables: Mapping[str, str]) -> MpiWorld | None:
    """None outside of any mpirun."""
    for environment in (OpenMpiEnvironment(), MpichEnvironment()):
        found = environment.world(variables)
        if found is not None:
            return found
    return None


def is_inside_mpi(variables: Mapping[str, str]) -> bool:
    return any(kind.rank in variables for kind in (OpenMpiEnvironment, MpichEnvironment))


def _ancestors() -> list[list[str]]:
    """The command lines of this process's parent, its parent, and so on."""
    found = []
    pid = "self"
    for _ in range(64):
        try:
            pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
        except (OSError, IndexError):
            break
    return found


def _control_port(ancestors: list[list[str]]) -> str:
    for words in ancestors:
        if Path(words[0]).name == "hydra_pmi_proxy" and "--control-port" in words[:-1]:
            return words[words.index("--control-port") + 1]
    return ""
