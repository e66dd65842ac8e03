"""``mpirun -np N trainscale run …``, typed by a person: N processes of one command line. Rank 0 is the controller; the
others are hosts for it, and hold a line to it until it is done (standing.py).

They have no MPI to speak with. Rank 0 leaves its addresses, a port and a one-time token in a file that only this user
can read, in the folder that all were started in and in the home folder; the others look for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...cluster.hosts import Host, HostAccess, Request
from ...cluster.mpi_world import WORLD_PREFIXES, MpiWorld, find_mpi_world
from ...errors import InputError, TrainscaleError
from ...folders import cache_folder
from ...worker.inspection.host_facts import addresses
from ...worker.supervision.leased_host import run_leased_host
from ..connections.callback_server import CallbackServer, Caller
from ..connections.launcher_process import LauncherProcess
from ..connections.worker_archive import RUN_FIRST_LINE
from .callback import CALLBACK_VARIABLE, CallbackEndpoint
from .leased import LeasedHostsLauncher, leased_host_program

MEETING_SECONDS = 120.0  # a shared file system may hide a new file for a minute
_LOOK_SECONDS = 0.2
_REACH_SECONDS = 5.0
_LOOPBACK = "127.0.0.1"


def run_once_inside_mpi(words: Sequence[str], main: Callable[[InsideMpiLauncher | None], int]) -> int:
    """Runs ``main`` once, however many processes an mpirun made of this command line: with a launcher for their hosts
    in the first of them, with none outside of any mpirun. The others return when the first has.
    """
    world = find_mpi_world(os.environ)
    if world is None:
        return main(None)
    meeting = RendezvousFile.of(world, words)
    _leave_mpi()
    if world.size == 1:
        return main(None)
    if world.rank > 0:
        return serve_as_host(world, meeting)
    company = InsideMpiLauncher(world, meeting)
    try:
        company.hosts()  # before anything can go wrong: they must not wait for somebody who has left
        return main(company)
    finally:
        company.close()


def _leave_mpi() -> None:
    """What is started from here is no process of the MPI job. Nor is it for one core: mpirun may have bound this
    process to one, as it would a rank, but it stands for all of a host. And the terminal that Open MPI gives to its
    processes is not one that a person looks at.
    """
    for name in [name for name in os.environ if name.startswith(WORLD_PREFIXES)]:
        del os.environ[name]
    os.environ["TTY_COMPATIBLE"] = "0"
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


@dataclass(frozen=True)
class RendezvousFile:
    """Where the processes of one mpirun find their first."""

    paths: tuple[Path, ...]

    @classmethod
    def of(cls, world: MpiWorld, words: Sequence[str]) -> RendezvousFile:
        """Named after the job, and after the command line where a job has no name."""
        key = hashlib.sha256(json.dumps([world.job, world.size, *words]).encode()).hexdigest()[:16]
        return cls(tuple(folder / f".trainscale-mpirun-{key}" for folder in (Path.cwd(), cache_folder())))

    @property
    def words(self) -> str:
        return f"{self.paths[0].parent} or {self.paths[1].parent}"

    def announce(self, call: CallbackEndpoint, ours: Sequence[str]) -> None:
        """In every place that can be written to; at least in one."""
        text = json.dumps({"addresses": list(ours), "port": call.port, "token": call.token})
        problems = []
        for path in self.paths:
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(text)
                fresh.replace(path)  # whole or not at all
            except OSError as error:
                with suppress(OSError):
                    fresh.unlink()
                problems.append(f"{path.parent}: {error.strerror}")
        if len(problems) == len(self.paths):
            raise InputError(f"inside mpirun: its processes cannot meet: {'; '.join(problems)}")

    def remove(self) -> None:
        for path in self.paths:
            with suppress(OSError):
                path.unlink()

    def find(self) -> list[CallbackEndpoint]:
        """What the first announced: a call for each of its addresses."""
        for path in self.paths:
            try:
                with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
                    if os.fstat(file.fileno()).st_uid != os.getuid():
                        continue  # a common folder holds anybody's files
                    found = json.load(file)
                return [CallbackEndpoint(address, found["port"], found["token"]) for address in found["addresses"]]
            except (OSError, ValueError, KeyError):
                continue
        return []


def serve_as_host(world: MpiWorld, meeting: RendezvousFile, seconds: float = MEETING_SECONDS) -> int:
    """Be a host, until the first process says that it is over."""
    name, until = socket.gethostname(), time.monotonic() + seconds
    while True:
        call = next(filter(_answers, meeting.find()), None)
        if call is not None:
            break
        if time.monotonic() > until:
            raise InputError(
                f"inside mpirun: process {world.rank}, on {name}, found no word of process 0 within {seconds:.0f} s"
                f" in {meeting.words}; start it in a folder that all hosts share"
            )
        time.sleep(_LOOK_SECONDS)
    os.environ[CALLBACK_VARIABLE] = call.variable
    return run_leased_host(RUN_FIRST_LINE, world.rank, name)


def _answers(call: CallbackEndpoint) -> bool:
    try:
        with socket.create_connection((call.address, call.port), _REACH_SECONDS):
            return True
    except OSError:
        return False


class InsideMpiLauncher(LeasedHostsLauncher):
    """For the first process. Its own host is served by a child of it."""

    name = "mpi"

    def __init__(self, world: MpiWorld, meeting: RendezvousFile, seconds: float = MEETING_SECONDS) -> None:
        super().__init__(HostAccess(request=Request(patience_seconds=seconds)))
        self._world, self._meeting = world, meeting

    def using(self, where: HostAccess) -> InsideMpiLauncher:
        """The same, from now on as an experiment says: with the first of the hosts, perhaps."""
        if where.setup or where.python:
            what = "setup" if where.setup else "remote python"
            raise InputError(f"{what}: inside mpirun hosts are used as they are; valid: before mpirun, in its script")
        self.access = where
        return self

    def command(self, call: CallbackEndpoint) -> list[str]:
        ours = [address for address in addresses().values() if not address.startswith("127.")]
        self._meeting.announce(call, ours or [_LOOPBACK])
        return [sys.executable, "-c", leased_host_program("0", repr(socket.gethostname()))]

    def address(self) -> str:
        return _LOOPBACK  # for the child; the others try all addresses of this machine

    def look_after(self, crew: LauncherProcess) -> int:
        return self._world.size

    def why_ended(self, crew: LauncherProcess) -> TrainscaleError:
        return TrainscaleError(f"inside mpirun: this host cannot be used: {crew.last_words()}")

    def missing_words(self, crew: LauncherProcess) -> str:
        return (
            f"the others look in {self._meeting.words} for where this one is; start it in a folder that all hosts share"
        )

    def _gather(self, reception: CallbackServer, crew: LauncherProcess, call: CallbackEndpoint) -> list[Caller]:
        until = time.monotonic() + self.access.request.patience_seconds
        while len(callers := reception.callers(self._world.size, _LOOK_SECONDS)) < self._world.size:
            if crew.ended:
                raise self.why_ended(crew)
            if time.monotonic() > until:
                missing = sorted({*range(self._world.size)} - {caller.index for caller in callers})
                some = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {self._world.size}"
                seconds = f"{self.access.request.patience_seconds:.0f} s"
                raise InputError(f"inside mpirun: {some} did not come within {seconds}; {self.missing_words(crew)}")
        return callers

    def lost_words(self, host: str) -> str:
        return "its process of this mpirun has ended"

    def give_back(self, crew: LauncherProcess, complete: bool) -> None:
        self._meeting.remove()
        crew.stop()

    def group_by_machine(self, found: Sequence[tuple[Host, Caller]]) -> list[tuple[Host, Caller]]:
        """Hosts in the order of their first processes, which serve them; each with as many slots as processes."""
        self._meeting.remove()
        return group_by_machine(found, set(addresses().values()))


def group_by_machine(found: Sequence[tuple[Host, Caller]], ours: set[str]) -> list[tuple[Host, Caller]]:
    """``ours``: the addresses of this machine, by some of which its processes call."""
    machines: dict[tuple[str, str], list[tuple[Host, Caller]]] = {}
    for host, caller in sorted(found, key=lambda one: one[1].index):
        here = caller.address in ours or caller.address.startswith("127.")
        machines.setdefault((caller.hostname, "" if here else caller.address), []).append((host, caller))
    # What another host calls this one.
    seen_as = next((c.called for (_, address), own in machines.items() if address for _, c in own), _LOOPBACK)
    names = [name for name, _ in machines]
    return [
        (
            Host(
                address or seen_as,
                alias=name if names.count(name) == 1 else f"{name}-{address or seen_as}",
                slots=len(processes),
            ),
            processes[0][1],
        )
        for (name, address), processes in machines.items()
    ]
