"""``mpirun -np N trainscale run …``: rank 0 is the controller, and the others become its keepers (leased.py).

They find it by a private file, to which it writes its addresses, a port and a one-time token.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from ...cluster.allocation import MpiWorld
from ...cluster.hosts import HostAccess
from ...errors import InputError, TrainscaleError
from ...folders import find_cache_folder
from ...record.files import write_atomically
from ...spec.devices import Host
from ...worker.inspection.host import list_addresses
from ..callback import Caller, LauncherProcess
from .callback import CALLBACK_VARIABLE, CallbackEndpoint, make_callback_program
from .leased import LeasedHostsLauncher

RENDEZVOUS_SECONDS = 120.0  # a shared file system may hide a new file for a minute
_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 5.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RendezvousFile:
    """The file by which the processes of one mpirun find rank 0."""

    paths: tuple[Path, ...]

    @classmethod
    def of(cls, world: MpiWorld, arguments: Sequence[str]) -> RendezvousFile:
        """Name the file after the job and the command line; a job may have no name."""
        key = hashlib.sha256(json.dumps([world.job, world.size, *arguments]).encode()).hexdigest()[:16]
        name = f".trainscale-mpirun-{key}"
        return cls((Path.cwd() / name, find_cache_folder() / name))

    @property
    def folders(self) -> str:
        return " or ".join(str(path.parent) for path in self.paths)

    def write(self, endpoint: CallbackEndpoint, own_addresses: Sequence[str]) -> None:
        """Write the file to each folder that allows it; an InputError if none does."""
        text = json.dumps({"addresses": list(own_addresses), "port": endpoint.port, "token": endpoint.token})
        problems = []
        for path in self.paths:
            try:
                write_atomically(path, text, 0o600)
            except OSError as error:
                problems.append(f"{path.parent}: {error.strerror}")
        if len(problems) == len(self.paths):
            raise InputError(f"inside mpirun: its processes cannot find each other: {'; '.join(problems)}")

    def remove(self) -> None:
        for path in self.paths:
            with suppress(OSError):
                path.unlink()

    def read(self) -> list[CallbackEndpoint]:
        """Return each address of rank 0; none while there is no valid file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW
        for path in self.paths:
            with suppress(OSError, ValueError, KeyError), os.fdopen(os.open(path, flags)) as file:
                # A common folder holds files of other users too.
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    content = json.load(file)
                    port, token = content["port"], content["token"]
                    return [CallbackEndpoint(address, port, token) for address in content["addresses"]]
        return []


def serve_as_host(world: MpiWorld, rendezvous: RendezvousFile, seconds: float = RENDEZVOUS_SECONDS) -> NoReturn:
    """Become a keeper of rank 0."""
    deadline = time.monotonic() + seconds
    while True:
        for endpoint in rendezvous.read():
            with suppress(OSError):
                socket.create_connection((endpoint.address, endpoint.port), _CONNECT_SECONDS).close()
                os.environ[CALLBACK_VARIABLE] = endpoint.variable
                program = make_callback_program(str(world.rank))
                os.execv(sys.executable, [sys.executable, "-c", program])
        if time.monotonic() > deadline:
            who = f"process {world.rank}, on {socket.gethostname()},"
            raise InputError(
                f"inside mpirun: {who} did not find process 0 within {seconds:.0f} s by a file in"
                f" {rendezvous.folders}; start mpirun in a folder that all hosts share"
            )
        time.sleep(_POLL_SECONDS)


class InsideMpiLauncher(LeasedHostsLauncher):
    """Used in rank 0, whose own host is served by a child process."""

    name = "mpi"

    def __init__(self, world: MpiWorld, rendezvous: RendezvousFile, seconds: float = RENDEZVOUS_SECONDS) -> None:
        super().__init__(HostAccess(patience_seconds=seconds))
        self._world, self._rendezvous = world, rendezvous

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        addresses = [address for address in list_addresses().values() if not address.startswith("127.")]
        self._rendezvous.write(endpoint, addresses or [_LOOPBACK])
        return [sys.executable, "-c", make_callback_program("0")]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        return super().environment(replace(endpoint, address=_LOOPBACK))

    def controller_address(self) -> str:
        return ""  # the processes on other hosts try all addresses of this machine

    def count_hosts(self, process: LauncherProcess) -> int:
        return self._world.size

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        return TrainscaleError(f"inside mpirun: this host cannot be used: {process.explain_exit()}")

    def explain_timeout(
        self, callers: Sequence[Caller], expected: int | None, where: str, process: LauncherProcess
    ) -> TrainscaleError:
        missing = sorted({*range(self._world.size)} - {caller.index for caller in callers})
        numbers = ", ".join(map(str, missing))
        who = f"process{'es' if len(missing) > 1 else ''} {numbers} of {self._world.size}"
        seconds = f"{self.access.patience_seconds:.0f} s"
        place = f"the others look for a file of this process in {self._rendezvous.folders}"
        return InputError(
            f"inside mpirun: {who} did not connect within {seconds}; {place};"
            " start mpirun in a folder that all hosts share"
        )

    def find_end(self) -> str:
        """An mpirun that loses a process ends all of them, sooner or later."""
        if self.find_lost_hosts():
            return "the mpirun has lost a process, and then it ends all of them"
        return super().find_end()

    def explain_lost(self, host: str) -> str:
        return "its process of this mpirun has ended"

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        self._rendezvous.remove()
        process.stop()

    def choose_hosts(self, callers: Sequence[Caller]) -> list[tuple[Host, Caller]]:
        """Return each machine, with a slot for each process; the first serves it."""
        self._rendezvous.remove()
        own_addresses = set(list_addresses().values())
        machines: dict[tuple[str, str], list[Caller]] = {}
        for caller in sorted(callers, key=lambda caller: caller.index):
            # Processes on this machine may call from any address.
            is_here = caller.address in own_addresses or caller.address.startswith("127.")
            address = "" if is_here else caller.address
            machines.setdefault((caller.hostname, address), []).append(caller)
        # The others reach this machine by the address that one of them called.
        called = [group[0].called for (_, address), group in machines.items() if address]
        own_address = called[0] if called else _LOOPBACK
        names = [name for name, _ in machines]
        hosts = []
        for (name, address), group in machines.items():
            address = address or own_address
            alias = name if names.count(name) == 1 else f"{name}-{address}"
            hosts.append((Host(address, alias=alias, slots=len(group)), group[0]))
        return hosts
