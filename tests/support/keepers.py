"""Keepers on this machine: launchers that start them without a network, and what a test of them needs."""

from __future__ import annotations

import atexit
import functools
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainscale.cluster.hosts import HostAccess
from trainscale.launch.callback import LauncherProcess
from trainscale.launch.connected_hosts import EventReader, ask_all
from trainscale.launch.connection import (
    AnyEvent,
    HostError,
    KeeperConnection,
    PipeConnection,
    ReceivedEvent,
    select_causes,
    stop_all,
)
from trainscale.launch.launchers.base import ITS_PYTHON, Launcher, PipeLauncher
from trainscale.launch.launchers.callback import CallbackEndpoint, CallbackLauncher
from trainscale.launch.worker_archive import RUN_FIRST_LINE
from trainscale.spec.devices import Host
from trainscale.worker.job import Task, TasksRequest, encode_request


@functools.cache
def shared_copies() -> Path:
    """Return the folder that all tests of this process share."""
    folder = tempfile.mkdtemp(prefix="trainscale-copies-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class ThisMachineLauncher(PipeLauncher):
    """All its hosts are this machine, each with a folder in place of a disk. Else it does what the ssh launcher does.

    ``shell_lines`` run on a host before its keeper starts; if they exit, no keeper starts. The folder of all disks is
    one that other tests use too, unless a test names its own.
    """

    name = "this-machine"
    reuses_keepers = False  # most tests do not close it

    def __init__(
        self, hosts: Sequence[str], shell_lines: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(HostAccess(tuple(Host(name) for name in hosts)))
        self._folder = folder or shared_copies()
        self._shell_lines = shell_lines or {}

    def command(self, host: str) -> list[str]:
        python = [sys.executable, "-c", RUN_FIRST_LINE]
        return ["/bin/sh", "-c", f"{self._shell_lines.get(host, ':')}\nexec {shlex.join(python)}"]

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        folder = self._folder
        return [self.idle.take(host) or PipeConnection(host, self.command(host), str(folder / host)) for host in hosts]


# Stands for mpirun or srun: starts a keeper for every number, reports those that fail, and ends when they have ended.
STARTER = """
import os, subprocess, sys
numbers, keeper = sys.argv[1].split(","), sys.argv[2:]
children = {subprocess.Popen(keeper, env={**os.environ, "INDEX": number}).pid: number for number in numbers}
failed = False
while children:
    pid, status = os.wait()
    number = children.pop(pid)
    if status:
        failed = True
        print(f"host{number} failed", flush=True)
sys.exit(failed)
"""


class Here(CallbackLauncher):
    """Its command starts keepers on this machine, which call back as those of mpirun or srun do. ``first`` is a program
    that runs before them, ``numbers`` are their numbers.
    """

    name = "here"
    index = 'os.environ["INDEX"]'

    def __init__(self, count: int, first: str = "", numbers: Sequence[int] | None = None, **where: Any):
        hosts = tuple(Host("127.0.0.1", f"host{number}") for number in range(count))
        super().__init__(HostAccess(hosts, **{"remote_dir": str(shared_copies()), "controller": "127.0.0.1", **where}))
        self._first, self._numbers = first, range(count) if numbers is None else numbers
        self.process: LauncherProcess | None = None

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.access.hosts]

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        numbers = ",".join(map(str, self._numbers))
        return [sys.executable, "-c", self._first + STARTER, numbers, *self.keeper_command(sys.executable)]

    def start(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> LauncherProcess:
        self.process = super().start(hosts, endpoint)
        return self.process


@contextmanager
def opened(launcher: Launcher, hosts: Sequence[str] = ()) -> Iterator[list[KeeperConnection]]:
    """Open keepers, by default of all hosts, without waiting for them; end them with the block."""
    keepers = launcher.open(hosts or [host.name for host in launcher.access.hosts])
    try:
        yield keepers
    finally:
        stop_all(keepers, 2.0)


def try_ready(
    connections: Sequence[KeeperConnection], ports: Mapping[str, int], seconds: float = 120.0
) -> dict[str, list[int] | HostError]:
    """Return free ports of each host, or its error."""

    def ask(connection: KeeperConnection, deadline: float) -> list[int]:
        connection.become_ready(deadline)
        count = ports.get(connection.host, 0)
        return connection.find_ports(count, deadline) if count else []

    return ask_all(connections, ask, seconds)


def ready(
    connections: Sequence[KeeperConnection], ports: Mapping[str, int], seconds: float = 120.0
) -> dict[str, list[int]]:
    """Return free ports of each host, or raise the first error."""
    answers = try_ready(connections, ports, seconds)
    for error in select_causes(answer for answer in answers.values() if isinstance(answer, HostError)):
        raise error
    return {host: answer for host, answer in answers.items() if not isinstance(answer, HostError)}


def start_task(keeper: KeeperConnection, program: str, seconds: float = 600.0, rank: int = 0, **options: Any) -> None:
    """Have a keeper run a Python program, for so many seconds at most."""
    task = Task(keeper.host, rank, [ITS_PYTHON, "-c", program], **options)
    keeper.write(encode_request(TasksRequest([task], seconds)))


def read_until(
    connections: Sequence[KeeperConnection], is_enough: Callable[[list[ReceivedEvent]], bool]
) -> list[ReceivedEvent]:
    """Read events until there are enough."""
    reader, received = EventReader(), list[ReceivedEvent]()
    reader.read_from(connections)
    deadline = time.monotonic() + 30
    while not is_enough(received):
        assert time.monotonic() < deadline, received
        received += reader.poll()
    return received


def events_of(received: Sequence[ReceivedEvent], kind: type[AnyEvent]) -> list[AnyEvent]:
    return [message.event for message in received if isinstance(message.event, kind)]
