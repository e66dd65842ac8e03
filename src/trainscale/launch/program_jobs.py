"""The processes of a user's program: on which hosts they run, and the variables by which those of each framework's own
engine find each other. Pure functions; programs.py starts and ends the processes.

As dmlc's trackers did, processes are dealt out to the hosts in turn, servers first. Unlike theirs, workers are numbered
host by host, because today's engines expect neighbouring ranks on neighbouring devices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..cluster.hosts import get_machine
from ..errors import InputError
from ..spec.config import FILL
from ..spec.devices import LOOPBACK, Host
from ..worker.job import SCHEDULER, SERVER, WORKER
from ..worker.keeper.program import ProgramJob
from ..worker.type_aliases import JsonObject
from .trial.jobs import find_loopback_interface

MEETINGS = ("torch", "jax", "scheduler")  # engines that meet at a port of their own, on the host of worker 0
ALL_ROLES = ""


@dataclass(frozen=True)
class ProgramRequest:
    """Which processes to run. ``shows_own_gpus``: a worker sees only its share of the host's GPUs, else all. ``chief``:
    worker 0 is the chief in TF_CONFIG, which leads while the others serve.
    """

    workers: int
    servers: int = 0
    scheduler: bool = False
    placement: str = ""  # FILL, else dealt out
    shows_own_gpus: bool = False
    chief: bool = False


@dataclass(frozen=True)
class Program:
    """One process. ``index`` is its number in its role, ``local_index`` its number among the workers of its host, and
    ``local_count`` how many those are.
    """

    role: str
    index: int
    host: Host
    local_index: int = 0
    local_count: int = 0

    @property
    def name(self) -> str:
        return self.role if self.role == SCHEDULER else f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        return f"{self.name} {self.host.name}"


@dataclass(frozen=True)
class ProgramCommand:
    """What every process runs, where, and which variables the user gave, by role and for ALL_ROLES."""

    command: list[str]
    folder: str
    variables: Mapping[str, Mapping[str, str]]


def assign_roles(request: ProgramRequest, hosts: Sequence[Host]) -> list[Program]:
    """Return the workers, then the servers, then the scheduler beside worker 0, if requested.

    Workers are dealt out in turn, after the servers; only slots in the hosts file are a limit. With the placement FILL,
    one host is filled before the next: its slots, else GPUs, else cores.
    """
    is_filled = request.placement == FILL
    limits = [host.slots for host in hosts]
    if is_filled:
        limits = [host.slots or len(get_machine(host).gpus) or len(get_machine(host).cores) for host in hosts]
    known = [limit for limit in limits if limit is not None]
    room = sum(known)
    if len(known) == len(hosts) and room < request.workers:
        each = ", ".join(f"{host.name} {limit}" for host, limit in zip(hosts, known, strict=True))
        reason = f"there is room for {room} ({each})"
        raise InputError(f"{request.workers} workers: {reason}; valid: 1 … {room}, or more slots")
    counts = [0] * len(hosts)
    turn = 0 if is_filled else request.servers
    while sum(counts) < request.workers:
        limit = limits[turn % len(hosts)]
        has_room = limit is None or counts[turn % len(hosts)] < limit
        counts[turn % len(hosts)] += has_room
        turn += not (is_filled and has_room)
    positions = [(host, index, count) for host, count in zip(hosts, counts, strict=True) for index in range(count)]
    workers = [Program(WORKER, index, *position) for index, position in enumerate(positions)]
    used_hosts = [host for host, count in zip(hosts, counts, strict=True) if count or not is_filled]
    servers = [Program(SERVER, index, used_hosts[index % len(used_hosts)]) for index in range(request.servers)]
    return workers + servers + ([Program(SCHEDULER, 0, workers[0].host)] if request.scheduler else [])


def count_ports(programs: Sequence[Program]) -> dict[str, int]:
    """Return how many ports each host needs: one for every worker and server; on that of worker 0 also the meetings."""
    counts = dict.fromkeys((program.host.name for program in programs), 0)
    for program in programs:
        counts[program.host.name] += program.role != SCHEDULER
    counts[programs[0].host.name] += len(MEETINGS)
    return counts


def build_program_jobs(
    request: ProgramRequest, programs: Sequence[Program], ports: Mapping[str, Sequence[int]], command: ProgramCommand
) -> list[ProgramJob]:
    """Return the job of every program, in their order. ``ports`` are free ones, as many as ``count_ports`` says."""
    is_distributed = len({program.host.name for program in programs}) > 1
    free_ports = {host: list(numbers) for host, numbers in ports.items()}
    meeting_ports = {name: free_ports[programs[0].host.name].pop() for name in MEETINGS}
    # On one host all messages stay inside it, whatever networks it has.
    own_addresses = [program.host.address if is_distributed else LOOPBACK for program in programs]
    meetings = {name: (own_addresses[0], port) for name, port in meeting_ports.items()}
    addresses = {
        program.name: f"{address}:{free_ports[program.host.name].pop(0)}"
        for program, address in zip(programs, own_addresses, strict=True)
        if program.role != SCHEDULER
    }
    jobs = []
    for program, address in zip(programs, own_addresses, strict=True):
        interface = program.host.interface if is_distributed else find_loopback_interface()
        environment = {
            **_make_torch_variables(request, programs, program, meetings["torch"]),
            **_make_tensorflow_variables(request, program, addresses),
            **_make_jax_variables(request, program, meetings["jax"]),
            **_make_dmlc_variables(request, program, meetings["scheduler"], address, interface),
        }
        if interface:  # without the = NCCL would take eth1 as a prefix, such as of eth10
            names = {"GLOO_SOCKET_IFNAME": interface, "TP_SOCKET_IFNAME": interface}
            environment.update(names, NCCL_SOCKET_IFNAME=f"={interface}")
        environment.update(command.variables.get(ALL_ROLES, {}))
        environment.update(command.variables.get(program.role, {}))
        defaults, machine = {"PYTHONUNBUFFERED": "1"}, get_machine(program.host)
        if program.local_count > 1:  # no more threads than the host has cores, in all its workers
            defaults["OMP_NUM_THREADS"] = str(max(1, len(machine.cores) // program.local_count))
        visible_gpus: list[int] | None = None  # all
        if machine.gpus and program.role != WORKER:
            visible_gpus = []  # TensorFlow would take the memory of all
        elif machine.gpus and request.shows_own_gpus:
            visible_gpus = _choose_share(program)
        jobs.append(ProgramJob(command.command, command.folder, environment, defaults, visible_gpus))
    return jobs


def _make_torch_variables(
    request: ProgramRequest, programs: Sequence[Program], program: Program, meeting: tuple[str, int]
) -> dict[str, str]:
    """Return what torchrun sets and ``env://`` reads. Servers get the address but are not in the world."""
    address, port = meeting
    common = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "WORLD_SIZE": str(request.workers)}
    if program.role != WORKER:
        return common
    hosts = list(dict.fromkeys(other.host.name for other in programs if other.role == WORKER))
    number = str(hosts.index(program.host.name))
    return {
        **common,
        "RANK": str(program.index),
        "LOCAL_RANK": str(program.local_index),
        "LOCAL_WORLD_SIZE": str(program.local_count),
        "GROUP_RANK": number,
        "NODE_RANK": number,
        "GROUP_WORLD_SIZE": str(len(hosts)),
    }


def _make_tensorflow_variables(
    request: ProgramRequest, program: Program, addresses: Mapping[str, str]
) -> dict[str, str]:
    """Return TF_CONFIG. TensorFlow has no scheduler."""
    if program.role == SCHEDULER:
        return {}
    workers = [addresses[f"{WORKER} {index}"] for index in range(request.workers)]
    cluster = {"chief": workers[:1], "worker": workers[1:]} if request.chief else {"worker": workers}
    if request.servers:
        cluster["ps"] = [addresses[f"{SERVER} {index}"] for index in range(request.servers)]
    task: JsonObject = {"type": "ps" if program.role == SERVER else "worker", "index": program.index}
    if request.chief and program.role == WORKER:
        task = {"type": "worker", "index": program.index - 1} if program.index else {"type": "chief", "index": 0}
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": {name: members for name, members in cluster.items() if members}, "task": task}
        )
    }


def _make_jax_variables(request: ProgramRequest, program: Program, meeting: tuple[str, int]) -> dict[str, str]:
    """Return the variables of JAX, which reads address and devices, and of Keras, which reads all of its three."""
    coordinator = f"{meeting[0]}:{meeting[1]}"
    common = {"JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": str(request.workers)}
    if program.role != WORKER:
        return common
    variables = {
        **common,
        "JAX_PROCESS_ID": str(program.index),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(request.workers),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(program.index),
    }
    share = _choose_share(program)
    if share and program.local_count > 1 and not request.shows_own_gpus:
        variables["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, share))
    return variables


def _make_dmlc_variables(
    request: ProgramRequest, program: Program, meeting: tuple[str, int], own_address: str, interface: str | None
) -> dict[str, str]:
    """Return what ps-lite reads and what dmlc's trackers added. Without a scheduler there is nothing, because MXNet
    waits for one as soon as it sees a role.
    """
    if not request.scheduler:
        return {}
    address, port = meeting
    variables = {
        "DMLC_ROLE": program.role,
        "DMLC_PS_ROOT_URI": address,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_WORKER": str(request.workers),
        "DMLC_NUM_SERVER": str(request.servers),
        "DMLC_NODE_HOST": own_address,
    }
    if interface:
        variables["DMLC_INTERFACE"] = interface
    if program.role != SCHEDULER:
        variables["DMLC_TASK_ID"] = str(program.index + (request.workers if program.role == SERVER else 0))
        variables[f"DMLC_{program.role.upper()}_ID"] = str(program.index)
    return variables


def _choose_share(program: Program) -> list[int]:
    """Return the numbers of a worker's GPUs. If there are more workers than GPUs, they share them."""
    gpus, workers = len(get_machine(program.host).gpus), program.local_count
    if not gpus or not workers:
        return []
    if workers > gpus:
        return [program.local_index % gpus]
    return list(range(program.local_index * gpus // workers, (program.local_index + 1) * gpus // workers))
