"""Assigns the processes of a user's program to hosts. Pure functions; variables.py gives each its variables, and
program_run.py starts and ends them.

As dmlc's trackers did, processes are dealt out to the hosts in turn, servers first. Unlike theirs, workers are numbered
host by host, because today's engines expect neighbouring ranks on neighbouring devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...cluster.devices import UsableHost
from ...errors import InputError
from ...spec.config import FILL
from ...worker.job import SCHEDULER, SERVER, WORKER

MEETINGS = ("torch", "jax", "scheduler")  # engines that meet at a port of their own, on the host of worker 0


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
    host: UsableHost
    local_index: int = 0
    local_count: int = 0

    @property
    def name(self) -> str:
        return self.role if self.role == SCHEDULER else f"{self.role} {self.index}"

    @property
    def label(self) -> str:
        return f"{self.name} {self.host.host}"


def assign_roles(request: ProgramRequest, hosts: Sequence[UsableHost]) -> list[Program]:
    """Return the workers, then the servers, then the scheduler beside worker 0, if requested."""
    counts = _count_filled(request, hosts) if request.placement == FILL else _count_dealt(request, hosts)
    positions = [(host, index, count) for host, count in zip(hosts, counts, strict=True) for index in range(count)]
    workers = [Program(WORKER, index, *position) for index, position in enumerate(positions)]
    used_hosts = [host for host, count in zip(hosts, counts, strict=True) if count or request.placement != FILL]
    servers = [Program(SERVER, index, used_hosts[index % len(used_hosts)]) for index in range(request.servers)]
    return workers + servers + ([Program(SCHEDULER, 0, workers[0].host)] if request.scheduler else [])


def _count_dealt(request: ProgramRequest, hosts: Sequence[UsableHost]) -> list[int]:
    """Return how many workers each host gets, in turn, after the servers. Only slots in the hosts file are a limit."""
    _check_room(request.workers, hosts, [host.slots for host in hosts])
    counts = [0] * len(hosts)
    turn = request.servers
    while sum(counts) < request.workers:
        slots = hosts[turn % len(hosts)].slots
        if slots is None or counts[turn % len(hosts)] < slots:
            counts[turn % len(hosts)] += 1
        turn += 1
    return counts


def _count_filled(request: ProgramRequest, hosts: Sequence[UsableHost]) -> list[int]:
    """Return how many workers each host gets if one is filled before the next: its slots, else GPUs, else cores."""
    rooms = [host.slots or len(host.machine.gpus) or len(host.machine.cores) for host in hosts]
    _check_room(request.workers, hosts, rooms)
    counts: list[int] = []
    for room in rooms:
        counts.append(min(room, request.workers - sum(counts)))
    return counts


def _check_room(workers: int, hosts: Sequence[UsableHost], rooms: Sequence[int | None]) -> None:
    limits = [room for room in rooms if room is not None]
    if len(limits) < len(rooms) or sum(limits) >= workers:
        return
    each = ", ".join(f"{host.host} {room}" for host, room in zip(hosts, limits, strict=True))
    room = sum(limits)
    raise InputError(f"{workers} workers: there is room for {room} ({each}); valid: 1 … {room}, or more slots")


def count_ports(programs: Sequence[Program]) -> dict[str, int]:
    """Return how many ports each host needs: one for every worker and server; on that of worker 0 also the meetings."""
    counts = dict.fromkeys((program.host.host for program in programs), 0)
    for program in programs:
        counts[program.host.host] += program.role != SCHEDULER
    counts[programs[0].host.host] += len(MEETINGS)
    return counts
