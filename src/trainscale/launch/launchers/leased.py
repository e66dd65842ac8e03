"""Launchers whose cluster chooses the hosts and lends them for the whole run: YARN, Ray.

One command brings the hosts. On each a small program (standby.py of the worker) calls back with a token that only this
run
knows and only until all have called; it holds that line, and starts a keeper whenever it is asked to. So a host that is
gone is known by its line, and closing the lines ends everything.
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import select
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from ...cluster.hosts import Host, HostAccess
from ...errors import TrainscaleError
from ..connections.callback_server import CallbackServer, Caller
from ..connections.keeper import HostError, KeeperConnection, SocketConnection
from ..connections.launcher_process import LauncherProcess
from ..connections.worker_archive import RUN_FIRST_LINE, WORKER
from .base import Launcher
from .callback import CALLBACK_VARIABLE, CallbackEndpoint

_LOOK_SECONDS = 0.5


def leased_host_program(*arguments: str) -> str:
    """What runs on a host for the whole run. The arguments are Python expressions for those of ``stand_by`` after its
    first: they say there which host it is.
    """
    text = (WORKER / "supervision/leased_host.py").read_text()
    return f"{text}\nsys.exit(run_leased_host({', '.join([repr(RUN_FIRST_LINE), *arguments])}))\n"


class HostLease:
    """The connection that a host holds open for the whole run."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.broken = ""  # why no keeper can be had there any more
        self._errors: dict[str, str] = {}
        self._buffer = b""

    def ask(self, port: int, token: str, word: str) -> None:
        """For a keeper, which shall call and say the word."""
        try:
            self.caller.connection.sendall(json.dumps({"port": port, "token": token, "word": word}).encode() + b"\n")
        except OSError as error:
            self.broken = self.broken or str(error)

    def error(self, word: str) -> str:
        """Why the keeper of that word will not call, if the host said so."""
        while not self.broken and select.select([self.caller.connection], [], [], 0)[0]:
            try:
                data = self.caller.connection.recv(4096)
            except OSError as error:
                self.broken = str(error)
                break
            if not data:
                self.broken = "it closed its connection"
                break
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for said in map(json.loads, lines):
                self._errors[said["word"]] = said["error"]
        return self._errors.pop(word, "")

    def close(self) -> None:
        self.caller.connection.close()


class LeasedHostsLauncher(Launcher):
    """``hosts`` brings them, at the first call; ``close`` gives them back."""

    def __init__(self, where: HostAccess | None = None) -> None:
        super().__init__(where)
        self._crew: LauncherProcess | None = None
        self._lines: dict[str, HostLease] = {}
        self._keepers: CallbackServer | None = None  # where they call
        self._token = secrets.token_hex(16)  # that lets them in there, with a word of their own
        self._words: dict[str, str] = {}  # that were asked for and not yet said, with their hosts

    @abstractmethod
    def command(self, call: CallbackEndpoint) -> list[str]:
        """What brings the hosts, and ends when they are given back."""

    def environment(self, call: CallbackEndpoint) -> dict[str, str]:
        """For the command. What is in arguments can be read by every user of a machine; this cannot."""
        return {**os.environ, CALLBACK_VARIABLE: call.variable}

    @abstractmethod
    def address(self) -> str:
        """What the hosts call this machine."""

    @abstractmethod
    def look_after(self, crew: LauncherProcess) -> int | None:
        """How many hosts there will be; None while the cluster has not said. Called again and again while they are
        waited for, and when all have come: the time to read what the command prints.
        """

    @abstractmethod
    def why_ended(self, crew: LauncherProcess) -> TrainscaleError:
        """Why the command ended before all hosts had called."""

    @abstractmethod
    def missing_words(self, crew: LauncherProcess) -> str:
        """What may be the reason that hosts are still missing."""

    @abstractmethod
    def lost_words(self, host: str) -> str:
        """Why a host is gone, or where a person can see it."""

    @abstractmethod
    def give_back(self, crew: LauncherProcess, complete: bool) -> None:
        """After the lines were closed: wait until the cluster has its hosts back. ``complete``: all had called."""

    def host(self, caller: Caller) -> Host:
        """A host by what was said of it. Its name need not be unique."""
        return Host(_said_address(caller) or caller.address, alias=caller.hostname)

    def arrange(self, found: Sequence[tuple[Host, Caller]]) -> list[tuple[Host, Caller]]:
        """The hosts to use, in their order, with names of their own. Callers left out are sent away."""
        return _named(found)

    @property
    def machines(self) -> list[str]:
        """Of every host, what it calls the machine that it is on."""
        return [line.caller.hostname for line in self._lines.values()]

    # For everybody

    def hosts(self) -> tuple[Host, ...]:
        if self._crew is None:
            try:
                self.access = replace(self.access, hosts=self._bring())
            except BaseException:
                self.close()
                raise
        return self.access.hosts

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """They are waited for when they are asked to become ready."""
        assert self._keepers is not None
        keepers: list[KeeperConnection] = []
        for host in hosts:
            word = secrets.token_hex(16)
            self._words[word] = host
            self._lines[host].ask(self._keepers.port, self._token, word)
            keepers.append(_StandingKeeper(host, self, word))
        return keepers

    def close(self) -> None:
        crew, self._crew = self._crew, None
        for line in self._lines.values():
            line.close()
        if self._keepers is not None:
            self._keepers.close()
            self._keepers = None
        if crew is not None:
            self.give_back(crew, complete=bool(self.access.hosts))

    # How hosts and keepers come

    def _bring(self) -> tuple[Host, ...]:
        address, token = self.address(), secrets.token_hex(16)
        # Number and name together are one host: two of the same would be the same one calling again.
        reception = CallbackServer(token, _identity, address=address)
        try:
            call = CallbackEndpoint(address, reception.port, token)
            self._crew = LauncherProcess(self.command(call), self.environment(call))
            callers = self._gather(reception, self._crew, call)
            found = self.arrange([(self.host(caller), caller) for caller in callers])
            kept = [caller for _, caller in found]
            for caller in callers:
                reception.take(_identity(caller), 0)  # it is not the reception's to close now
                if caller not in kept:
                    caller.connection.close()
        finally:
            reception.close()
        self._lines = {host.name: HostLease(caller) for host, caller in found}
        self._keepers = CallbackServer(self._token, self._known_word, address=address)
        return tuple(host for host, _ in found)

    def _gather(self, reception: CallbackServer, crew: LauncherProcess, call: CallbackEndpoint) -> list[Caller]:
        patience = self.access.request.patience_seconds
        until = time.monotonic() + patience
        while True:
            wanted = self.look_after(crew)
            callers = _living(reception, reception.callers(wanted or 2**30, _LOOK_SECONDS))
            if wanted is not None and len(callers) >= wanted:
                self.look_after(crew)
                return callers[:wanted]
            if crew.ended:
                raise self.why_ended(crew)
            if time.monotonic() > until:
                some = f"{len(callers)} of {wanted} hosts" if wanted else "no host"
                raise TrainscaleError(
                    f"launcher {self.name}: {some} called back within {patience:.0f} s (--timeout), on"
                    f" {call.address}:{call.port}; {self.missing_words(crew)}"
                )

    def _known_word(self, caller: Caller) -> str:
        """Each is said once; a LookupError for any other."""
        (word,) = caller.more
        del self._words[word]
        return word

    def wait_for(self, host: str, word: str, until: float) -> socket.socket:
        """The connection of the keeper that was asked to say this word."""
        assert self._keepers is not None
        line = self._lines[host]
        while (caller := self._keepers.take(word, _LOOK_SECONDS)) is None:
            error = line.error(word)
            if error:
                raise HostError(host, f"cannot start a keeper: {error}")
            if line.broken:
                raise HostError(host, f"is gone ({line.broken}); {self.lost_words(host)}")
            if time.monotonic() > until:
                raise HostError(host, "did not start a keeper in time")
        return caller.connection

    def forget(self, word: str) -> None:
        """A keeper that nobody waits for any more."""
        self._words.pop(word, None)
        caller = self._keepers.take(word, 0) if self._keepers else None
        if caller:
            caller.connection.close()


class _StandingKeeper(SocketConnection):
    """It can be talked to once it has called."""

    def __init__(self, host: str, launcher: LeasedHostsLauncher, word: str) -> None:
        super().__init__(host, None, launcher.access.remote_dir)
        self._launcher, self._word = launcher, word

    def become_ready(self, ports: int, until: float) -> list[int]:
        self._connect(self._launcher.wait_for(self.host, self._word, until))
        return super().become_ready(ports, until)

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        self._launcher.forget(self._word)
        return super().stop(patience_seconds)


def _identity(caller: Caller) -> str:
    return f"{caller.index} {caller.hostname}"


def _living(reception: CallbackServer, callers: Sequence[Caller]) -> list[Caller]:
    """Without those that are gone again while others were waited for."""
    found = []
    for caller in callers:
        if select.select([caller.connection], [], [], 0)[0]:  # they have nothing to say: it is the end
            reception.take(_identity(caller), 0)
            caller.connection.close()
        else:
            found.append(caller)
    return found


def _said_address(caller: Caller) -> str:
    return caller.more[0] if caller.more and caller.more[0] != "-" else ""


def _named(found: Sequence[tuple[Host, Caller]]) -> list[tuple[Host, Caller]]:
    """In the order of their addresses, so that ranks do not depend on who called first; names made unique: several
    containers of one machine are several hosts.
    """
    ordered = sorted(found, key=lambda one: (_by_address(one[0].address), one[0].name, one[1].index))
    names = [host.name for host, _ in ordered]
    taken = set(names)
    unique = []
    for host, caller in ordered:
        if names.count(host.name) > 1:
            alias = next(one for number in count(1) if (one := f"{host.name}-{number}") not in taken)
            taken.add(alias)
            host = replace(host, alias=alias)
        unique.append((host, caller))
    return unique


def _by_address(text: str) -> tuple[int, int, str]:
    """Numerically where it is a number: 10.0.0.9 comes before 10.0.0.10."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return (9, 0, text)
    return (address.version, int(address), text)
