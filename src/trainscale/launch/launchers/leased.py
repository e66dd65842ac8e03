"""Launchers whose cluster leases the hosts for the whole run: YARN, Ray, and an mpirun around us.

One command gets the hosts. On each, a keeper calls back and stays. The token is valid until all have called.
A lost connection is a lost host; closing the connections ends everything on the hosts.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from ...cluster.hosts import HostAccess, HostList
from ...errors import InputError, TrainscaleError
from ...spec.devices import Host
from ...spec.experiment import Experiment
from ...spec.settings import SettingGroup
from ..callback import CallbackServer, Caller, LauncherProcess
from ..connection import HostError, KeeperConnection, SocketConnection
from .base import Launcher
from .callback import CALLBACK_VARIABLE, CallbackEndpoint

_POLL_SECONDS = 0.5


class LeasedHostsLauncher(Launcher):
    """The first call of ``hosts`` gets the hosts from the cluster; ``close`` returns them."""

    reuses_keepers = True

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        super().__init__(access, settings)
        self._process: LauncherProcess | None = None
        self._keepers: dict[str, LeasedConnection] = {}

    @classmethod
    def find_hosts(cls, experiment: Experiment, environment: Mapping[str, str]) -> HostList:
        """Return no hosts: the cluster chooses them later."""
        hosts = experiment.cluster.hosts
        if hosts:
            reason = f"it chooses the hosts itself, and {hosts} names some"
            raise InputError(f"launcher {cls.name}: {reason}; valid: --nodes N")
        return HostList()

    @abstractmethod
    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        """Return the command that holds the hosts until it ends."""

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:

        return {**os.environ, CALLBACK_VARIABLE: endpoint.variable}

    @abstractmethod
    def controller_address(self) -> str:
        """Return the address that the hosts call; empty to listen on all networks."""

    @abstractmethod
    def count_hosts(self, process: LauncherProcess) -> int | None:
        """Return how many hosts there will be, if known. Called until all have called back."""

    @abstractmethod
    def explain_end(self, process: LauncherProcess) -> TrainscaleError: ...

    def explain_missing(self, process: LauncherProcess) -> str:
        return "can the hosts reach this machine? see --controller-address"

    def explain_timeout(
        self, callers: Sequence[Caller], expected: int | None, where: str, process: LauncherProcess
    ) -> TrainscaleError:
        who = f"{len(callers)} of {expected} hosts" if expected else "no host"
        seconds = f"{self.access.patience_seconds:.0f} s (--timeout)"
        message = f"{who} called back within {seconds}, on {where}; {self.explain_missing(process)}"
        return TrainscaleError(f"launcher {self.name}: {message}")

    @abstractmethod
    def explain_lost(self, host: str) -> str:
        """Say why a host was lost, or where a person can look that up."""

    @abstractmethod
    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        """Wait until the cluster has its hosts back. ``complete``: all hosts had called."""

    def choose_hosts(self, callers: Sequence[Caller]) -> list[tuple[Host, Caller]]:
        """Return the hosts, sorted by address. Containers of one machine get unique names."""

        def order(caller: Caller) -> tuple[list[int], str, int]:  # 10.0.0.9 comes before 10.0.0.10
            numbers = [int(number) for number in re.findall(r"\d+", caller.address)]
            return numbers, caller.hostname, caller.index

        counts = Counter(caller.hostname for caller in callers)
        taken, chosen = set(counts), []
        for caller in sorted(callers, key=order):
            name = caller.hostname
            if counts[name] > 1:
                name = next(alias for number in count(1) if (alias := f"{name}-{number}") not in taken)
                taken.add(name)
            chosen.append((Host(caller.address, alias=name), caller))
        return chosen

    def hosts(self) -> tuple[Host, ...]:
        if self._process is None:
            try:
                self.access = replace(self.access, hosts=self._lease_hosts())
            except BaseException:
                self.close()
                raise
        return self.access.hosts

    def _lease_hosts(self) -> tuple[Host, ...]:
        address, token = self.controller_address(), secrets.token_hex(16)
        server = CallbackServer(token, _identify, address=address)
        try:
            endpoint = CallbackEndpoint(address, server.port, token)
            command, environment = self.command(endpoint), self.environment(endpoint)
            process = self._process = LauncherProcess(command, environment)
            deadline = time.monotonic() + self.access.patience_seconds
            while True:
                expected = self.count_hosts(process)
                callers = server.wait_for_callers(expected or 2**30, _POLL_SECONDS)
                if expected is not None and len(callers) >= expected:
                    self.count_hosts(process)  # reads what was printed meanwhile
                    break
                if process.has_ended:
                    raise self.explain_end(process)
                if time.monotonic() > deadline:
                    where = f"{address}:{server.port}" if address else f"port {server.port}"
                    raise self.explain_timeout(callers, expected, where, process)
            chosen = self.choose_hosts(callers[:expected])
            for host, caller in chosen:
                server.take(_identify(caller), 0)  # so that the server does not close its connection
                self._keepers[host.name] = LeasedConnection(host.name, caller.connection, self)
                self.idle.add(self._keepers[host.name])
        finally:
            server.close()  # and the connections of the others
        return tuple(host for host, _ in chosen)

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """Return the connections, also of lost hosts, which cannot become ready."""
        return [self.idle.take(host) or self._keepers[host] for host in hosts]

    def find_lost_hosts(self) -> list[str]:
        return [name for name, keeper in self._keepers.items() if keeper.is_lost]

    def find_end(self) -> str:
        """One lost host is that host's failure; all together are the end of the lease."""
        if self._keepers and len(self.find_lost_hosts()) == len(self._keepers):
            return f"the lease of {self.name} has ended: the connections to all of its hosts are gone"
        return super().find_end()

    def close(self) -> None:
        process, self._process = self._process, None
        super().close()
        if process is not None:
            self.release_hosts(process, complete=bool(self.access.hosts))


class LeasedConnection(SocketConnection):
    def __init__(self, host: str, connection: socket.socket, launcher: LeasedHostsLauncher) -> None:
        super().__init__(host, connection)
        self._launcher = launcher

    @property
    def is_lost(self) -> bool:
        assert self._connection is not None
        if self._connection.fileno() < 0:
            return True
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def become_ready(self, deadline: float) -> None:
        if self.is_lost:
            raise self._explain_end()
        self.remote_dir = self._launcher.access.remote_dir
        super().become_ready(deadline)

    def explain_loss(self, was_told_to_end: bool) -> tuple[str, str]:
        return self.host, self._launcher.explain_lost(self.host)

    def _explain_end(self) -> HostError:
        return HostError(self.host, f"is gone; {self._launcher.explain_lost(self.host)}")


def _identify(caller: Caller) -> str:
    """A second caller with the same number and name is the same host again."""
    return f"{caller.index} {caller.hostname}"
