"""Which of a user's processes goes where, and the variables by which frameworks find each other there."""

import json
from dataclasses import replace
from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.launch.programs import (
    Program,
    ProgramRequest,
    assign_roles,
    build_program_jobs,
    count_ports,
)
from trainscale.spec.config import FILL, ROUND_ROBIN
from trainscale.spec.devices import Host
from trainscale.worker.inspection.host import Gpu, HostFacts, Machine
from trainscale.worker.keeper.program import ProgramJob

GIB = 2**30


def machine(gpus: int = 0, cores: int = 4) -> Machine:
    cards = tuple(Gpu(index, "a card", 16 * GIB, "570") for index in range(gpus))
    return Machine("name", "a CPU", tuple(range(cores)), 1, 8 * GIB, 8 * GIB, cards, "", 0.0, 0.0)


def hosts(count: int, slots: int | None = None, gpus: int = 0) -> list[Host]:
    return [
        Host(f"10.0.0.{n}", f"node{n}", slots=slots, interface="eth1", facts=HostFacts(machine(gpus)))
        for n in range(1, count + 1)
    ]


def places(request: ProgramRequest, usable_hosts: list[Host]) -> dict[str, list[str]]:
    """Names of the processes of each host."""
    where: dict[str, list[str]] = {}
    for program in assign_roles(request, usable_hosts):
        where.setdefault(program.host.name, []).append(program.name)
    return where


def set_up(request: ProgramRequest, usable_hosts: list[Host]) -> dict[str, ProgramJob]:
    request = replace(request, command=["train"], folder="/")
    programs = assign_roles(request, usable_hosts)
    free = {host: list(range(1000 * n, 1000 * n + count)) for n, (host, count) in enumerate(wanted(programs), 1)}
    made = build_program_jobs(request, programs, free)
    return {program.name: setting for program, setting in zip(programs, made, strict=True)}


def wanted(programs: list[Program]) -> list[tuple[str, int]]:
    return list(count_ports(programs).items())


def tf_config(setting: ProgramJob) -> Any:
    return json.loads(setting.environment["TF_CONFIG"])


# ---- who goes where


def test_processes_are_dealt_out_servers_first_as_dmlc_did() -> None:
    assert places(ProgramRequest(2, 2, True), hosts(2)) == {
        "node1": ["worker 0", "server 0", "scheduler"],
        "node2": ["worker 1", "server 1"],
    }
    # Five cards for two hosts: the servers take the first two, then a worker each in turn.
    assert places(ProgramRequest(3, 2), hosts(2)) == {
        "node1": ["worker 0", "worker 1", "server 0"],
        "node2": ["worker 2", "server 1"],
    }
    assert places(ProgramRequest(2, 1), hosts(2)) == {"node1": ["worker 0", "server 0"], "node2": ["worker 1"]}
    # Workers are numbered host by host.
    assert places(ProgramRequest(4), hosts(2)) == {"node1": ["worker 0", "worker 1"], "node2": ["worker 2", "worker 3"]}
    # Without slots, a host takes any number of processes.
    assert len(assign_roles(ProgramRequest(100), hosts(1))) == 100


def test_filling_takes_the_next_host_when_one_is_full_and_puts_servers_beside_the_workers() -> None:
    assert places(ProgramRequest(3, 3, placement=FILL), hosts(3, slots=2)) == {
        "node1": ["worker 0", "worker 1", "server 0", "server 2"],
        "node2": ["worker 2", "server 1"],
    }
    # A host without slots is full when its GPUs, else its cores, are taken.
    names_by_host = places(ProgramRequest(3, placement=FILL), hosts(2, gpus=2))
    assert {host: len(names) for host, names in names_by_host.items()} == {"node1": 2, "node2": 1}
    assert list(places(ProgramRequest(4, placement=FILL), hosts(2))) == ["node1"]


def test_a_host_whose_slots_are_taken_is_passed_over() -> None:
    small, large = hosts(2)
    usable_hosts = [replace(small, slots=1), replace(large, slots=3)]
    names_by_host = places(ProgramRequest(4), usable_hosts)
    assert {host: len(names) for host, names in names_by_host.items()} == {"node1": 1, "node2": 3}


@pytest.mark.parametrize("placement", [FILL, ROUND_ROBIN])
def test_more_workers_than_slots_are_refused_with_the_room_there_is(placement: str) -> None:
    with pytest.raises(InputError, match=r"5 workers: there is room for 4 \(node1 2, node2 2\); valid: 1 … 4"):
        assign_roles(ProgramRequest(5, placement=placement), hosts(2, slots=2))


# ---- ports


def test_every_worker_and_server_has_a_port_and_the_first_host_those_where_engines_meet() -> None:
    assert count_ports(assign_roles(ProgramRequest(2, 2, True), hosts(2))) == {"node1": 5, "node2": 2}
    made = set_up(ProgramRequest(3, 2, True), hosts(2))
    first = made["worker 0"].environment
    config = tf_config(made["worker 0"])["cluster"]
    ports = [
        *config["worker"],
        *config["ps"],
        first["JAX_COORDINATOR_ADDRESS"],
        f"{first['MASTER_ADDR']}:{first['MASTER_PORT']}",
        f"{first['DMLC_PS_ROOT_URI']}:{first['DMLC_PS_ROOT_PORT']}",
    ]
    assert len(set(ports)) == len(ports) == 8


# ---- variables, to the letter


def test_the_variables_of_a_worker_on_the_second_host() -> None:
    assert set_up(ProgramRequest(3, 2, True), hosts(2))["worker 2"] == ProgramJob(
        command=["train"],
        folder="/",
        environment={
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "1005",
            "WORLD_SIZE": "3",
            "RANK": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": "1",
            "NODE_RANK": "1",
            "GROUP_WORLD_SIZE": "2",
            "TF_CONFIG": '{"cluster": {"worker": ["10.0.0.1:1000", "10.0.0.1:1001", "10.0.0.2:2000"],'
            ' "ps": ["10.0.0.1:1002", "10.0.0.2:2001"]}, "task": {"type": "worker", "index": 2}}',
            "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1004",
            "JAX_NUM_PROCESSES": "3",
            "JAX_PROCESS_ID": "2",
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": "10.0.0.1:1004",
            "KERAS_DISTRIBUTION_NUM_PROCESSES": "3",
            "KERAS_DISTRIBUTION_PROCESS_ID": "2",
            "DMLC_ROLE": "worker",
            "DMLC_PS_ROOT_URI": "10.0.0.1",
            "DMLC_PS_ROOT_PORT": "1003",
            "DMLC_NUM_WORKER": "3",
            "DMLC_NUM_SERVER": "2",
            "DMLC_NODE_HOST": "10.0.0.2",
            "DMLC_INTERFACE": "eth1",
            "DMLC_TASK_ID": "2",
            "DMLC_WORKER_ID": "2",
            "GLOO_SOCKET_IFNAME": "eth1",
            "TP_SOCKET_IFNAME": "eth1",
            "NCCL_SOCKET_IFNAME": "=eth1",
        },
        defaults={"PYTHONUNBUFFERED": "1"},
        gpus=None,
    )


def test_a_server_is_no_rank_and_a_scheduler_has_no_place_in_tensorflow() -> None:
    made = set_up(ProgramRequest(2, 2, True), hosts(2))
    server, scheduler = made["server 1"].environment, made["scheduler"].environment
    assert not {"RANK", "LOCAL_RANK", "JAX_PROCESS_ID"} & {*server, *scheduler}
    assert tf_config(made["server 1"])["task"] == {"type": "ps", "index": 1}
    assert (server["DMLC_ROLE"], server["DMLC_SERVER_ID"], server["DMLC_TASK_ID"]) == ("server", "1", "3")
    assert scheduler["DMLC_ROLE"] == "scheduler"
    assert "TF_CONFIG" not in scheduler
    for request in (ProgramRequest(2), ProgramRequest(2, 2)):  # MXNet would wait for a scheduler
        made = set_up(request, hosts(2))
        assert not [name for setting in made.values() for name in setting.environment if name.startswith("DMLC")]


def test_a_chief_leads_and_the_other_workers_are_numbered_from_0() -> None:
    made = set_up(ProgramRequest(3, 1, chief=True), hosts(1))
    cluster = tf_config(made["worker 0"])["cluster"]
    assert {name: len(addresses) for name, addresses in cluster.items()} == {"chief": 1, "worker": 2, "ps": 1}
    assert tf_config(made["worker 0"])["task"] == {"type": "chief", "index": 0}
    assert tf_config(made["worker 2"])["task"] == {"type": "worker", "index": 1}
    alone = set_up(ProgramRequest(1, chief=True), hosts(1))["worker 0"]
    assert list(tf_config(alone)["cluster"]) == ["chief"]


def test_on_one_host_everything_stays_inside_it() -> None:
    made = set_up(ProgramRequest(2, 1, True), hosts(1))
    for setting in made.values():
        assert setting.environment["MASTER_ADDR"] == setting.environment["DMLC_NODE_HOST"] == "127.0.0.1"
        assert setting.environment["GLOO_SOCKET_IFNAME"] == "lo"
        assert "10.0.0.1" not in json.dumps(vars(setting))


def test_workers_of_a_host_share_its_cores_unless_the_host_says_otherwise() -> None:
    assert set_up(ProgramRequest(2), hosts(1))["worker 0"].defaults["OMP_NUM_THREADS"] == "2"
    assert set_up(ProgramRequest(8), hosts(1))["worker 7"].defaults["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in set_up(ProgramRequest(1), hosts(1))["worker 0"].defaults


def test_a_host_whose_interface_is_unknown_gets_none() -> None:
    usable_hosts = [replace(host, interface=None) for host in hosts(2)]
    environment = set_up(ProgramRequest(2, 2, True), usable_hosts)["worker 0"].environment
    assert not [name for name in environment if "INTERFACE" in name or "IFNAME" in name]


# ---- GPUs


def test_workers_see_all_gpus_of_their_host_and_servers_none() -> None:
    made = set_up(ProgramRequest(2, 1), hosts(1, gpus=4))
    assert (made["worker 0"].gpus, made["worker 1"].gpus, made["server 0"].gpus) == (None, None, [])
    # JAX would take them all; torch goes by LOCAL_RANK.
    assert made["worker 1"].environment["JAX_LOCAL_DEVICE_IDS"] == "2,3"


@pytest.mark.parametrize(
    ("workers", "gpus", "shares"),
    [(1, 4, [[0, 1, 2, 3]]), (2, 4, [[0, 1], [2, 3]]), (3, 4, [[0], [1], [2, 3]]), (3, 2, [[0], [1], [0]])],
)
def test_own_gpus_are_an_even_share(workers: int, gpus: int, shares: list[list[int]]) -> None:
    made = set_up(ProgramRequest(workers, shows_own_gpus=True), hosts(1, gpus=gpus))
    assert [setting.gpus for setting in made.values()] == shares
    assert not any("JAX_LOCAL_DEVICE_IDS" in setting.environment for setting in made.values())
    without = set_up(ProgramRequest(2, 1, shows_own_gpus=True), hosts(1))  # GPUs: they keep their own variables
    assert {setting.gpus for setting in without.values()} == {None}
