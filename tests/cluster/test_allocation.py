"""What a batch system gave: hosts, GPUs, and the settings of the older Slurm scripts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import program

from trainscale.cluster.allocation import (
    MpiWorld,
    choose_launcher,
    find_allocated_hosts,
    find_mpi_world,
    is_inside_mpi,
    is_inside_slurm,
    read_gpus_per_host,
    read_legacy_settings,
)
from trainscale.errors import InputError
from trainscale.launch.launchers.target import make_launcher
from trainscale.spec.experiment import Experiment, make_experiment

needs_slurm = pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm's scontrol is not installed")


@pytest.fixture
def without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonesuch")


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scontrol wants a configuration, though names need no controller."""
    path = tmp_path / "slurm.conf"
    path.write_text(
        "ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\nNodeName=a\nPartitionName=b Nodes=ALL\n"
        "MessageTimeout=1\nTCPTimeout=1\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(path))


@pytest.mark.processes
@needs_slurm
@pytest.mark.usefixtures("configured")
def test_slurms_hosts_are_expanded_by_slurm_and_used() -> None:
    given = find_allocated_hosts({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[08-10,2],login"})
    assert [host.name for host in given.hosts] == ["node08", "node09", "node10", "node2", "login"]
    assert given.source == "Slurm job 7"
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-4]"}
    place = make_launcher(make_experiment({}), environment=inside)
    assert (place.name, len(place.access.hosts)) == ("slurm", 4)
    assert len(make_launcher(make_experiment({"hosts_count": 2}), environment=inside).access.hosts) == 2
    assert make_launcher(make_experiment({"launcher": "local"}), environment=inside).local
    with pytest.raises(InputError, match="scontrol cannot read the nodes of this job, ,: it names none"):
        find_allocated_hosts({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": ","})
    with pytest.raises(InputError, match=r"cannot show job 7: .*Unable to contact slurm controller"):
        read_gpus_per_host({"SLURM_JOB_ID": "7"})


@pytest.mark.processes
@pytest.mark.usefixtures("without_slurm")
def test_a_job_without_slurms_programs_is_told() -> None:
    with pytest.raises(InputError, match="no scontrol on the PATH"):
        find_allocated_hosts({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1"})
    assert read_gpus_per_host({}) == 0


def test_hosts_of_a_pbs_job_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    given = find_allocated_hosts({"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "9"})
    assert [host.name for host in given.hosts] == ["a", "b"]
    assert choose_launcher(Experiment(), {"PBS_NODEFILE": str(tmp_path / "nodes")}) == "mpi"
    with pytest.raises(InputError, match="PBS_NODEFILE"):
        find_allocated_hosts({"PBS_NODEFILE": str(tmp_path / "none")})
    assert find_allocated_hosts({}) is None
    assert find_allocated_hosts({"SLURM_JOB_ID": "7"}) is None  # a leftover: a job has nodes
    assert not is_inside_slurm({"SLURM_CONF": "/a/file"})


@pytest.mark.processes
@pytest.mark.parametrize(
    ("groups", "count"),
    [
        ("Nodes=node[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:2(IDX:0-1)", 2),
        ("Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:a100:4(IDX:0-3) Nodes=b CPU_IDs=0 Mem=0 GRES=gpu:a100:3(IDX:0-2)", 3),
        ("Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:a:1(IDX:0),gpu:b:2(IDX:1-2),nic:7", 3),
        ("Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1) Nodes=b CPU_IDs=0 Mem=0 GRES=", 0),
        ("Nodes=a CPU_IDs=0 Mem=0 GRES=mygpu:4", 0),
        ("", 0),
    ],
)
def test_the_gpus_of_a_job_are_those_that_every_host_has(
    groups: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = f"JobId=1 JOB_GRES=gpu:9 {groups} MinCPUsNode=1 TresPerNode=gres:gpu:8"
    program(tmp_path, "scontrol", f"echo '{job}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert read_gpus_per_host({"SLURM_JOB_ID": "1"}) == count


ALL = {
    "TF_NUM_PS": "2",
    "TF_NUM_WORKERS": "8",
    "TF_PS_PER_NODE": "1",
    "TF_WORKER_PER_NODE": "4",
    "TF_PS_IN_WORKER": "false",
}


def test_the_older_variables_mean_servers_workers_and_their_places() -> None:
    settings, description = read_legacy_settings(ALL, {})
    assert settings == {
        "servers": 2,
        "max_devices": 8,
        "servers_per_host": 1,
        "gpus_per_host": 4,
        "server_placement": "apart",
        "strategies": ("ps",),
    }
    assert description == (
        "taken from TF_NUM_PS, TF_NUM_WORKERS, TF_PS_PER_NODE, TF_WORKER_PER_NODE, TF_PS_IN_WORKER: servers 2,"
        " max devices 8, servers per host 1, devices per host 4, server placement apart, strategies ps"
    )


@pytest.mark.parametrize(
    ("given", "unheard"),
    [
        ({"servers": 3}, {"servers"}),
        ({"max_devices": 4}, {"max_devices"}),
        ({"devices": (1, 2)}, {"max_devices"}),
        ({"server_placement": ("beside",)}, {"server_placement"}),
        ({"strategies": ("allreduce",)}, {"strategies", "servers", "servers_per_host", "server_placement"}),
        ({"strategies": ("ps-async:2",)}, {"strategies"}),
    ],
)
def test_what_a_flag_or_a_file_says_wins_over_the_older_variables(given: dict[str, Any], unheard: set[str]) -> None:
    settings, _ = read_legacy_settings(ALL, given)
    assert set(settings) == read_legacy_settings(ALL, {})[0].keys() - unheard
    experiment = make_experiment(given, None, lambda _: settings)
    assert experiment.to_dict().items() >= given.items()


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        *(
            (
                {"TF_NUM_PS": "1", "TF_PS_IN_WORKER": text},
                {"servers": 1, "server_placement": placement, "strategies": ("ps",)},
            )
            for text, placement in (("true", "beside"), ("TRUE", "beside"), ("false", "apart"))
        ),
        ({"TF_PS_PER_NODE": "2", "TF_PS_IN_WORKER": "true"}, {}),  # without a number of servers there are none
        ({"TF_NUM_PS": ""}, {}),
    ],
)
def test_some_of_the_older_variables_may_be_missing(variables: dict[str, str], settings: dict[str, Any]) -> None:
    assert read_legacy_settings(variables, {})[0] == settings


@pytest.mark.parametrize(
    ("variable", "text"),
    [("TF_NUM_PS", "0"), ("TF_NUM_WORKERS", "many"), ("TF_PS_PER_NODE", "-1"), ("TF_PS_IN_WORKER", "maybe")],
)
def test_an_older_variable_that_makes_no_sense_is_named(variable: str, text: str) -> None:
    with pytest.raises(InputError, match=f"{variable} '{text}'; valid: "):
        read_legacy_settings({"TF_NUM_PS": "1", variable: text}, {})


OPEN_MPI_4 = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_MCA_ess_base_jobid": "1167851521",
    "PMIX_NAMESPACE": "1167851521",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "PMI_FD": "5", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}


@pytest.mark.parametrize(
    ("variables", "world"),
    [
        (OPEN_MPI_4, MpiWorld(2, 4, "1167851521")),
        ({k: v for k, v in OPEN_MPI_4.items() if k != "PMIX_NAMESPACE"}, MpiWorld(2, 4, "1167851521")),
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "0"}, None),
        ({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "2"}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "5", "SLURM_PROCID": "1"}, None),  # of srun
    ],
)
def test_an_mpirun_says_rank_size_and_job(variables: dict[str, str], world: MpiWorld | None) -> None:
    assert find_mpi_world(variables) == world


@pytest.mark.parametrize(
    ("variables", "is_inside"),
    [(OPEN_MPI_4, True), (MPICH, True), ({"OMPI_MCA_btl": "tcp", "PATH": "/bin"}, False)],
)
def test_variables_of_a_world_are_noticed(variables: dict[str, str], is_inside: bool) -> None:
    assert is_inside_mpi(variables) == is_inside


@pytest.mark.processes
@pytest.mark.parametrize(("name", "job"), [("hydra_pmi_proxy", "10.0.0.1:41061"), ("sh", "")])
def test_mpich_says_rank_and_size_and_its_job_is_known_by_the_address_of_mpirun(name: str, job: str) -> None:
    code = f"from trainscale.cluster.allocation import find_mpi_world; print(find_mpi_world({MPICH}))"
    start = f"""exec -a {name} bash -c '"$2" -c "$3"; true' "$@\""""
    command = ["bash", "-c", start, "", "--control-port", "10.0.0.1:41061", sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(MpiWorld(2, 4, job))
