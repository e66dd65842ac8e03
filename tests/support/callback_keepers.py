"""A launcher whose command starts keepers on this machine. They call back, as those of mpirun or srun do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from this_machine_launcher import shared_copies

from trainscale.cluster.hosts import HostAccess
from trainscale.launch.callback import LauncherProcess
from trainscale.launch.launchers.callback import CallbackEndpoint, CallbackLauncher
from trainscale.spec.devices import Host

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
    """Starts keepers on this machine. ``first`` is a program that runs before them, ``numbers`` are their numbers."""

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
