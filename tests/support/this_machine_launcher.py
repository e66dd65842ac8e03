"""A launcher whose hosts are all this machine, each with its own folder in place of a disk. It does what the ssh
launcher does, without a network, so tests need no lab.
"""

from __future__ import annotations

import atexit
import functools
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainscale.cluster.hosts import HostAccess
from trainscale.launch.connection import KeeperConnection, PipeConnection
from trainscale.launch.launchers.base import PipeLauncher
from trainscale.launch.worker_archive import RUN_FIRST_LINE
from trainscale.spec.devices import Host


@functools.cache
def shared_copies() -> Path:
    """Return the folder that all tests of this process share."""
    folder = tempfile.mkdtemp(prefix="trainscale-copies-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


PYTHON = [sys.executable, "-c", RUN_FIRST_LINE]


class ThisMachineLauncher(PipeLauncher):
    """``shell_lines`` run on a host before its keeper starts; if they exit, no keeper starts. The folder, which has a
    disk for each host, is one that other tests use too, unless a test names its own.
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
        return ["/bin/sh", "-c", f"{self._shell_lines.get(host, ':')}\nexec {shlex.join(PYTHON)}"]

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        folder = self._folder
        return [self.idle.take(host) or PipeConnection(host, self.command(host), str(folder / host)) for host in hosts]
