"""Which process of an mpirun this is, by the variables of each implementation."""

from __future__ import annotations

import pytest

from trainscale.cluster import mpi_world
from trainscale.cluster.mpi_world import MpiWorld, find_mpi_world, is_inside_mpi

OPEN_MPI_4 = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_MCA_ess_base_jobid": "1167851521",
    "PMIX_NAMESPACE": "1167851521",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "PMI_FD": "5", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
PROXY = ["/usr/bin/hydra_pmi_proxy", "--control-port", "10.0.0.1:41061", "--rmk", "user", "--proxy-id", "1", ""]


def test_open_mpi_says_rank_size_and_job() -> None:
    assert find_mpi_world(OPEN_MPI_4) == MpiWorld(2, 4, "1167851521")
    older = {name: value for name, value in OPEN_MPI_4.items() if not name.startswith("PMIX")}
    assert find_mpi_world(older) == MpiWorld(2, 4, "1167851521")


def test_mpich_says_rank_and_size_and_its_job_is_known_by_the_address_of_mpirun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mpi_world, "_read_ancestor_commands", lambda: [["sh", "-c", "x", ""], PROXY, ["sshd", ""]])
    assert find_mpi_world(MPICH) == MpiWorld(2, 4, "10.0.0.1:41061")
    monkeypatch.setattr(mpi_world, "_read_ancestor_commands", lambda: [["sh", ""], [""]])
    assert find_mpi_world(MPICH) == MpiWorld(2, 4, "")


def test_outside_of_mpirun_there_is_no_world() -> None:
    assert find_mpi_world({}) is None
    assert find_mpi_world({"OMPI_COMM_WORLD_RANK": "0"}) is None
    assert find_mpi_world({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "2"}) is None


def test_processes_of_srun_are_not_those_of_an_mpirun() -> None:
    srun = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "5", "SLURM_PROCID": "1"}
    assert find_mpi_world(srun) is None


def test_variables_of_a_world_are_noticed() -> None:
    assert is_inside_mpi(OPEN_MPI_4)
    assert is_inside_mpi(MPICH)
    assert not is_inside_mpi({"OMPI_MCA_btl": "tcp", "PATH": "/bin"})


def test_ancestor_commands_are_read_from_the_system() -> None:
    commands = mpi_world._read_ancestor_commands()
    assert commands
    assert all(isinstance(argv, list) for argv in commands)
