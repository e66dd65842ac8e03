"""A launcher whose hosts are this machine, each with a folder of its own in place of a disk: all that ssh does but the
network, so that tests of what is asked and answered need no lab.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainscale.cluster.hosts import Host, HostAccess
from trainscale.launch.connections.keeper import KeeperConnection, PipeConnection
from trainscale.launch.connections.worker_archive import RUN_FIRST_LINE
from trainscale.launch.launchers.base import PipeLauncher

PYTHON = [sys.executable, "-c", RUN_FIRST_LINE]


class HereLauncher(PipeLauncher):
    """``instead``: what the shell of a host does first, or in place of a keeper if it ends there."""

    name = "here"

    def __init__(self, folder: Path, hosts: Sequence[str], instead: Mapping[str, str] | None = None) -> None:
        super().__init__(HostAccess(tuple(Host(name) for name in hosts)))
        self._folder = folder
        self._instead = instead or {}

    def command(self, host: str) -> list[str]:
        return ["/bin/sh", "-c", f"{self._instead.get(host, ':')}\nexec {shlex.join(PYTHON)}"]

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        return [PipeConnection(host, self.command(host), str(self._folder / host)) for host in hosts]
