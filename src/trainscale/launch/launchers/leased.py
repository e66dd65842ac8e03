"""Launchers whose cluster chooses the hosts and leases them for the whole run: YARN, Ray, and an mpirun around us.

One command gets the hosts. On each of them a small program (worker/keeper/leased_host.py) calls back with a token
that is valid until all hosts have called. It holds its connection open and starts a keeper whenever it is asked to. A
lost connection means a lost host, and closing the connections ends everything on the hosts.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...cluster.hosts import HostAccess, HostList
from ...errors import InputError, TrainscaleError
from ...spec.devices import Host
from ...spec.experiment import Experiment
from ...spec.settings import SettingGroup
from ..callback import CallbackServer, Caller, LauncherProcess
from ..connection import HostError, KeeperConnection, SocketConnection, wait_for_readable
from ..worker_archive import RUN_FIRST_LINE, WORKER
from .base import Launcher
from .callback import CALLBACK_VARIABLE, CallbackEndpoint
from .host_lease import HostLease, sort_and_name

_POLL_SECONDS = 0.5


def make_leased_host_program(*arguments: str) -> str:
    """Return the program that runs on a host for the whole run. The arguments are Python expressions, evaluated on the
    host, for those of ``run_leased_host`` after its first.
    """
    text = (WORKER / "keeper/leased_host.py").read_text()
    return f"{text}\nsys.exit(run_leased_host({', '.join([repr(RUN_FIRST_LINE), *arguments])}))\n"


class LeasedHostsLauncher(Launcher):
    """The first call of ``hosts`` gets the hosts from the cluster; ``close`` returns them."""

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        super().__init__(access, settings)
        self._process: LauncherProcess | None = None
        self._leases: dict[str, HostLease] = {}
        self._server: CallbackServer | None = None  # that keepers call
        self._token = secrets.token_hex(16)  # that keepers send there, with a key of their own
        self._pending: set[str] = set()  # keys of keepers that were requested and have not called

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
        """Return the command that gets the hosts, and that ends when they are returned."""

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the environment of the command. Every user can read arguments; nobody else can read this."""
        return {**os.environ, CALLBACK_VARIABLE: endpoint.variable}

    @abstractmethod
    def controller_address(self) -> str:
        """Return the address by which the hosts reach this machine."""

    def listen_address(self) -> str:
        """Return the address on which to listen for hosts; empty for all networks."""
        return self.controller_address()

    @abstractmethod
    def count_hosts(self, process: LauncherProcess) -> int | None:
        """Return how many hosts there will be; None while that is not known. This is called repeatedly while hosts are
        awaited, and once when all have called, so it is also the place to read what the command prints.
        """

    @abstractmethod
    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        """Explain why the command ended before all hosts had called."""

    @abstractmethod
    def explain_missing(self, process: LauncherProcess) -> str:
        """Say why hosts may still be missing."""

    def explain_timeout(
        self, callers: Sequence[Caller], expected: int | None, port: int, process: LauncherProcess
    ) -> TrainscaleError:
        """Explain that not all hosts called in time."""
        who = f"{len(callers)} of {expected} hosts" if expected else "no host"
        address = self.controller_address()
        return TrainscaleError(
            f"launcher {self.name}: {who} called back within {self.access.request.patience_seconds:.0f} s (--timeout),"
            f" on {f'{address}:{port}' if address else f'port {port}'}; {self.explain_missing(process)}"
        )

    @abstractmethod
    def explain_lost(self, host: str) -> str:
        """Say why a host was lost, or where a person can look that up."""

    @abstractmethod
    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        """Wait until the cluster has its hosts back; their connections are closed already. ``complete``: all hosts had
        called.
        """

    def make_host(self, caller: Caller) -> Host:
        """Return the host that called. Its name need not be unique."""
        stated = caller.details[0] if caller.details and caller.details[0] != "-" else ""
        return Host(stated or caller.address, alias=caller.hostname)

    def choose_hosts(self, candidates: Sequence[tuple[Host, Caller]]) -> list[tuple[Host, Caller]]:
        """Return the hosts to use, in order, with unique names. The others are disconnected."""
        return sort_and_name(candidates)

    @property
    def machine_names(self) -> list[str]:
        """The name of the machine that each host is on."""
        return [lease.caller.hostname for lease in self._leases.values()]

    def hosts(self) -> tuple[Host, ...]:
        if self._process is None:
            try:
                self.access = replace(self.access, hosts=self._lease_hosts())
            except BaseException:
                self.close()
                raise
        return self.access.hosts

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """Request the keepers. Each connection waits for its keeper when it is asked to become ready."""
        assert self._server is not None
        keepers: list[KeeperConnection] = []
        for host in hosts:
            key = secrets.token_hex(16)
            self._pending.add(key)
            self._leases[host].request_keeper(self._server.port, self._token, key)
            keepers.append(LeasedHostConnection(host, self, key))
        return keepers

    def find_end(self) -> str:
        """One lost host is that host's failure. All of them together are the end of the lease."""
        if self._leases and len(self.find_lost_hosts()) == len(self._leases):
            return f"the lease of {self.name} has ended: the connections to all of its hosts are gone"
        return super().find_end()

    def find_lost_hosts(self) -> list[str]:
        return [name for name, lease in self._leases.items() if lease.is_lost]

    def close(self) -> None:
        process, self._process = self._process, None
        for lease in self._leases.values():
            lease.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        if process is not None:
            self.release_hosts(process, complete=bool(self.access.hosts))

    def _lease_hosts(self) -> tuple[Host, ...]:
        address, token = self.controller_address(), secrets.token_hex(16)
        server = CallbackServer(token, _identify, address=self.listen_address())
        try:
            endpoint = CallbackEndpoint(address, server.port, token)
            self._process = LauncherProcess(self.command(endpoint), self.environment(endpoint))
            callers = self._wait_for_callers(server, self._process)
            chosen = self.choose_hosts([(self.make_host(caller), caller) for caller in callers])
            used = [caller for _, caller in chosen]
            for caller in callers:
                server.take(_identify(caller), 0)  # so that the server does not close its connection
                if caller not in used:
                    caller.connection.close()
        finally:
            server.close()
        self._leases = {host.name: HostLease(caller) for host, caller in chosen}
        # Keepers call the address that their host called. With several, listen on all networks.
        called = {caller.called for caller in used}
        self._server = CallbackServer(
            self._token, self._identify_keeper, address=called.pop() if len(called) == 1 else ""
        )
        return tuple(host for host, _ in chosen)

    def _wait_for_callers(self, server: CallbackServer, process: LauncherProcess) -> list[Caller]:
        deadline = time.monotonic() + self.access.request.patience_seconds
        while True:
            expected = self.count_hosts(process)
            callers = _drop_lost(server, server.wait_for_callers(expected or 2**30, _POLL_SECONDS))
            if expected is not None and len(callers) >= expected:
                self.count_hosts(process)
                return callers[:expected]
            if process.has_ended:
                raise self.explain_end(process)
            if time.monotonic() > deadline:
                raise self.explain_timeout(callers, expected, server.port, process)

    def _identify_keeper(self, caller: Caller) -> str:
        """Each key is valid once; a LookupError refuses any other."""
        (key,) = caller.details
        self._pending.remove(key)
        return key

    def wait_for_keeper(self, host: str, key: str, deadline: float) -> socket.socket:
        """Return the connection of the keeper that was requested with this key."""
        assert self._server is not None
        lease = self._leases[host]
        while (caller := self._server.take(key, _POLL_SECONDS)) is None:
            error = lease.take_error(key)
            if error:
                raise HostError(host, f"cannot start a keeper: {error}")
            if lease.lost_reason:
                raise HostError(host, f"is gone ({lease.lost_reason}); {self.explain_lost(host)}")
            if time.monotonic() > deadline:
                raise HostError(host, "did not start a keeper in time")
        return caller.connection

    def cancel_keeper(self, key: str) -> None:
        """Disconnect a keeper that nobody waits for any more."""
        self._pending.discard(key)
        caller = self._server.take(key, 0) if self._server else None
        if caller:
            caller.connection.close()


class LeasedHostConnection(SocketConnection):
    """A keeper of a leased host. It can be used once it has called."""

    def __init__(self, host: str, launcher: LeasedHostsLauncher, key: str) -> None:
        super().__init__(host, None, launcher.access.remote_dir)
        self._launcher, self._key = launcher, key

    def become_ready(self, deadline: float) -> None:
        self._connect(self._launcher.wait_for_keeper(self.host, self._key, deadline))
        super().become_ready(deadline)

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        self._launcher.cancel_keeper(self._key)
        return super().stop(patience_seconds)


def _identify(caller: Caller) -> str:
    """Number and name together are one host: a second caller with both is the same host again."""
    return f"{caller.index} {caller.hostname}"


def _drop_lost(server: CallbackServer, callers: Sequence[Caller]) -> list[Caller]:
    """Close the connections that ended while others were awaited; return the rest."""
    alive = []
    for caller in callers:
        if wait_for_readable([caller.connection], 0):  # a host sends nothing by itself, so this is the end
            server.take(_identify(caller), 0)
            caller.connection.close()
        else:
            alive.append(caller)
    return alive
