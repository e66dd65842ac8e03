"""Contract 6, the launcher: how keepers are started on hosts. The settings of all are in spec/groups.py.

There is a command for every host, connected by pipes, or one for all, whose keepers call back (callback.py).
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ...cluster.allocation import find_allocated_hosts, find_end_of_own_job
from ...cluster.hosts import HostAccess, HostList, read_hosts
from ...errors import InputError
from ...spec.devices import Host
from ...spec.experiment import Experiment
from ...spec.settings import SettingGroup
from ..connected_hosts import ConnectedHosts, IdleKeepers
from ..connection import READY_SECONDS, KeeperConnection, PipeConnection

START = Path(__file__).resolve().parents[2] / "worker" / "start.py"

# In the command of a task: the host's copy of start.py, and the interpreter of its keeper.
ITS_START, ITS_PYTHON = "START", "PYTHON"


class Launcher(ABC):
    """Starts keepers on the hosts of one run, for each of its trials."""

    name: str
    local = False  # whether the only host is this machine, which needs no copy of the worker
    reuses_keepers = False  # for later trials, until ``close``

    settings_type: ClassVar[type[SettingGroup]] = SettingGroup
    settings: SettingGroup
    no_hosts = "no hosts; name a file by --hosts, or run inside an allocation"

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        self.access = access or HostAccess()
        self.settings = settings or self.settings_type()
        self.idle = IdleKeepers()

    @classmethod
    def find_hosts(cls, experiment: Experiment, environment: Mapping[str, str]) -> HostList:
        """Return the hosts of the hosts file, else those of the allocation."""
        path = experiment.cluster.hosts
        if path:
            return HostList(read_hosts(Path(path).expanduser()), path)
        host_list = find_allocated_hosts(environment)
        if host_list is None:
            raise InputError(f"launcher {cls.name}: {cls.no_hosts}")
        return host_list

    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts of the run. The launcher asks a cluster that chooses them."""
        return self.access.hosts

    @abstractmethod
    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """Begin to start a keeper on every host, in this order."""

    def connect(
        self, hosts: Sequence[str], seconds: float = READY_SECONDS, tolerates_errors: bool = False
    ) -> ConnectedHosts:
        """The context manager waits for the keepers and ends them."""
        return ConnectedHosts(self, hosts, seconds, tolerates_errors)

    def find_end(self) -> str:
        """After a failed trial, return why the cluster took the hosts back, if it did."""
        return "" if self.local else find_end_of_own_job(os.environ)

    def close(self) -> None:
        """Release what the launcher holds. Called once, when the run is over."""
        self.idle.close()


class PipeLauncher(Launcher):
    reuses_keepers = True

    @abstractmethod
    def command(self, host: str) -> list[str]:
        """Return the command that starts a keeper on the host, connected by pipes."""

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        folder = None if self.local else self.access.remote_dir
        return [self.idle.take(host) or PipeConnection(host, self.command(host), folder) for host in hosts]
