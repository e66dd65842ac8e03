"""A user's own program on many hosts: which process goes where, and the variables by which the frameworks' own engines
find each other there. Pure. Starting and ending is for attend.py.

As dmlc's trackers did, processes are dealt out to the hosts like cards, servers first; unlike theirs, workers are
numbered host by host, because engines of today take neighbouring ranks for neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...cluster.devices import UsableHost
from ...errors import InputError
from ...spec.config import FILL
from ...spec.devices import LOOPBACK
from ...worker.job import SCHEDULER, SERVER, WORKER
from ..trial.placement import loopback_interface

_MEETINGS = ("torch", "jax", "scheduler")  # a port each, on the host of worker 0


@dataclass(frozen=True)
class ProgramRequest:
    """``own_gpus``: a worker sees its share of its host's GPUs alone, else all. ``chief``: in TF_CONFIG worker 0 is the
    chief, who leads while the others serve.
    """

    workers: int
    servers: int = 0
    scheduler: bool = False
    placement: str = ""  # FILL, or dealt out
    own_gpus: bool = False
    chief: bool = False


@dataclass(frozen=True)
class Program:
    """One process. ``index`` counts those of its role; ``local`` the workers of its host, of which there are
    ``beside``.
    """

    role: str
    index: int
    host: UsableHost
    local: int = 0
    beside: int = 0

    @property
    def name(self) -> str:
        return self.role if self.role == SCHEDULER else f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        return f"{self.name} {self.host.host}"


def assign_roles(asked: ProgramRequest, hosts: Sequence[UsableHost]) -> list[Program]:
    """Workers, then servers, then a scheduler beside worker 0 where one is asked for."""
    counts = _filled(asked, hosts) if asked.placement == FILL else _dealt(asked, hosts)
    spots = [(host, local, count) for host, count in zip(hosts, counts, strict=True) for local in range(count)]
    workers = [Program(WORKER, index, *spot) for index, spot in enumerate(spots)]
    carrying = [host for host, count in zip(hosts, counts, strict=True) if count or asked.placement != FILL]
    servers = [Program(SERVER, index, carrying[index % len(carrying)]) for index in range(asked.servers)]
    return workers + servers + ([Program(SCHEDULER, 0, workers[0].host)] if asked.scheduler else [])


def _dealt(asked: ProgramRequest, hosts: Sequence[UsableHost]) -> list[int]:
    """How many workers each host gets: one each in turn, after the servers had theirs. Only slots that the hosts file
    names are a limit.
    """
    _check_room(asked.workers, hosts, [host.slots for host in hosts])
    counts = [0] * len(hosts)
    turn = asked.servers
    while sum(counts) < asked.workers:
        slots = hosts[turn % len(hosts)].slots
        if slots is None or counts[turn % len(hosts)] < slots:
            counts[turn % len(hosts)] += 1
        turn += 1
    return counts


def _filled(asked: ProgramRequest, hosts: Sequence[UsableHost]) -> list[int]:
    """One host before the next: its slots, else as many as it has GPUs, else cores."""
    rooms = [host.slots or len(host.machine.gpus) or len(host.machine.cores) for host in hosts]
    _check_room(asked.workers, hosts, rooms)
    counts: list[int] = []
    for room in rooms:
        counts.append(min(room, asked.workers - sum(counts)))
    return counts


def _check_room(workers: int, hosts: Sequence[UsableHost], rooms: Sequence[int | None]) -> None:
    limits = [room for room in rooms if room is not None]
    if len(limits) < len(rooms) or sum(limits) >= workers:
        return
    each = ", ".join(f"{host.host} {room}" for host, room in zip(hosts, limits, strict=True))
    room = sum(limits)
    raise InputError(f"{workers} workers: there is room for {room} ({each}); valid: 1 … {room}, or more slots")


def ports_needed(programs: Sequence[Program]) -> dict[str, int]:
    """Of each host: one for every worker and server, and on that of worker 0 those where engines meet."""
    needed = dict.fromkeys((program.host.host for program in programs), 0)
    for program in programs:
        needed[program.host.host] += program.role != SCHEDULER
    needed[programs[0].host.host] += len(_MEETINGS)
    return needed


@dataclass(frozen=True)
class ProgramEnvironment:
    """What a program finds when it begins. ``defaults`` yield to the host's own; ``gpus`` None shows all."""

    environment: dict[str, str]
    defaults: dict[str, str]
    gpus: list[int] | None

    def to_dict(self) -> dict[str, Any]:
        return {"environment": self.environment, "defaults": self.defaults, "gpus": self.gpus}


def settings(
    asked: ProgramRequest, programs: Sequence[Program], ports: Mapping[str, Sequence[int]]
) -> list[ProgramEnvironment]:
    """Of every program, in their order. ``ports``: free ones of each host, as many as ``ports_needed``."""
    several = len({program.host.host for program in programs}) > 1
    free = {host: list(numbers) for host, numbers in ports.items()}
    first = programs[0].host
    meetings = {name: (_address(first, several), free[first.host].pop()) for name in _MEETINGS}
    own = {
        program.name: f"{_address(program.host, several)}:{free[program.host.host].pop(0)}"
        for program in programs
        if program.role != SCHEDULER
    }
    found = []
    for program in programs:
        variables = {
            **_torch(asked, programs, program, meetings["torch"]),
            **_tensorflow(asked, program, own),
            **_jax(asked, program, meetings["jax"]),
            **_dmlc(asked, program, meetings["scheduler"], several),
            **_network(program.host.interface if several else loopback_interface()),
        }
        found.append(ProgramEnvironment(variables, _defaults(program), _gpus(asked, program)))
    return found


def _address(host: UsableHost, several: bool) -> str:
    """On one host everything stays inside it, whatever networks it has."""
    return host.address if several else LOOPBACK


def _torch(
    asked: ProgramRequest, programs: Sequence[Program], program: Program, meeting: tuple[str, int]
) -> dict[str, str]:
    """What torchrun sets and ``env://`` reads. Servers are told where, but are none of the world."""
    address, port = meeting
    common = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "WORLD_SIZE": str(asked.workers)}
    if program.role != WORKER:
        return common
    hosts = list(dict.fromkeys(one.host.host for one in programs if one.role == WORKER))
    number = str(hosts.index(program.host.host))
    return {
        **common,
        "RANK": str(program.index),
        "LOCAL_RANK": str(program.local),
        "LOCAL_WORLD_SIZE": str(program.beside),
        "GROUP_RANK": number,
        "NODE_RANK": number,
        "GROUP_WORLD_SIZE": str(len(hosts)),
    }


def _tensorflow(asked: ProgramRequest, program: Program, own: Mapping[str, str]) -> dict[str, str]:
    """TF_CONFIG. TensorFlow knows no scheduler."""
    if program.role == SCHEDULER:
        return {}
    workers = [own[f"{WORKER} {index}"] for index in range(asked.workers)]
    cluster = {"chief": workers[:1], "worker": workers[1:]} if asked.chief else {"worker": workers}
    if asked.servers:
        cluster["ps"] = [own[f"{SERVER} {index}"] for index in range(asked.servers)]
    task: dict[str, Any] = {"type": "ps" if program.role == SERVER else "worker", "index": program.index}
    if asked.chief and program.role == WORKER:
        task = {"type": "worker", "index": program.index - 1} if program.index else {"type": "chief", "index": 0}
    return {"TF_CONFIG": json.dumps({"cluster": {name: who for name, who in cluster.items() if who}, "task": task})}


def _jax(asked: ProgramRequest, program: Program, meeting: tuple[str, int]) -> dict[str, str]:
    """JAX itself reads the address and the devices; Keras all of its three."""
    coordinator = f"{meeting[0]}:{meeting[1]}"
    if program.role != WORKER:
        return {"JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": str(asked.workers)}
    variables = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(asked.workers),
        "JAX_PROCESS_ID": str(program.index),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(asked.workers),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(program.index),
    }
    share = _share(program)
    if share and program.beside > 1 and not asked.own_gpus:
        variables["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, share))
    return variables


def _dmlc(asked: ProgramRequest, program: Program, meeting: tuple[str, int], several: bool) -> dict[str, str]:
    """What ps-lite reads, and what dmlc's trackers added. Only with a scheduler: MXNet waits for one as soon as it sees
    a role.
    """
    if not asked.scheduler:
        return {}
    address, port = meeting
    variables = {
        "DMLC_ROLE": program.role,
        "DMLC_PS_ROOT_URI": address,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_WORKER": str(asked.workers),
        "DMLC_NUM_SERVER": str(asked.servers),
        "DMLC_NODE_HOST": _address(program.host, several),
    }
    interface = program.host.interface if several else loopback_interface()
    if interface:
        variables["DMLC_INTERFACE"] = interface
    if program.role != SCHEDULER:
        variables["DMLC_TASK_ID"] = str(program.index + (asked.workers if program.role == SERVER else 0))
        variables[f"DMLC_{program.role.upper()}_ID"] = str(program.index)
    return variables


def _network(interface: str | None) -> dict[str, str]:
    if not interface:
        return {}
    # NCCL would take eth1 for the beginning of a name, such as eth10.
    return {"GLOO_SOCKET_IFNAME": interface, "TP_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}


def _defaults(program: Program) -> dict[str, str]:
    """Lines as they are printed, not in blocks; and no more threads in a host's workers together than it has cores."""
    defaults = {"PYTHONUNBUFFERED": "1"}
    if program.beside > 1:
        defaults["OMP_NUM_THREADS"] = str(max(1, len(program.host.machine.cores) // program.beside))
    return defaults


def _gpus(asked: ProgramRequest, program: Program) -> list[int] | None:
    """Servers get none: TensorFlow's would take the memory of all."""
    if not program.host.machine.gpus:
        return None
    if program.role != WORKER:
        return []
    return _share(program) if asked.own_gpus else None


def _share(program: Program) -> list[int]:
    """Numbers of the GPUs that fall to a worker. Where there are more workers than GPUs, they share."""
    gpus, workers = len(program.host.machine.gpus), program.beside
    if not gpus or not workers:
        return []
    if workers > gpus:
        return [program.local % gpus]
    return list(range(program.local * gpus // workers, (program.local + 1) * gpus // workers))
