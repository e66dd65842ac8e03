"""Launchers whose one command starts the keepers of all hosts (mpirun, srun, YARN, Ray): each keeper calls back.

The command carries an address and a one-time token in the environment. A keeper connects, says the token, its index
among those that the command started, and the name of its host; from then on the connection is its standard input and
output, and what follows is as over ssh. Who may call is decided in reception.py.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ...worker.inspection.host_facts import addresses
from ..connections import ssh_errors
from ..connections.callback_server import CallbackServer
from ..connections.keeper import READY_SECONDS, HostError, KeeperConnection, SocketConnection
from ..connections.launcher_process import LauncherProcess
from ..connections.ssh_errors import SshError
from ..connections.worker_archive import RUN_FIRST_LINE
from .base import Launcher

__all__ = [
    "CALLBACK_PROGRAM",
    "CALLBACK_VARIABLE",
    "CallbackConnection",
    "CallbackEndpoint",
    "CallbackLauncher",
    "LauncherProcess",
    "explain_no_callback",
    "find_outward_address",
]

CALLBACK_VARIABLE = "TRAINSCALE_CALL"
_LATE_SECONDS = 3.0  # for a keeper to call when the command said that it cannot have another
_SAY_SECONDS = 1.0  # for the command to say what it saw, when a keeper is gone
_LOOK_SECONDS = 0.2
_HOSTS_TO_ASK = 8
_NO_CALL = re.compile(
    r"^\S*(?:(?:ConnectionRefusedError|TimeoutError|gaierror): (?:\[Errno -?\d+\] )?"
    r"|OSError: \[Errno 1(?:01|10|11|13)\] )(?P<why>.+)",
    re.MULTILINE,
)
_ANOTHER_ADDRESS = "is there a firewall in between? --controller-address names another address of this machine"
_SOMEWHERE = "198.51.100.1"  # set apart for documentation: reached, if at all, by the default route

# What every host runs: connect, say who this is, be that connection. {index} is an expression for this keeper's number.
# The keep-alive finds a controller whose machine lost its power; the token is not for the ranks.
CALLBACK_PROGRAM = (
    "import os,socket;"
    f'a,p,t=os.environ.pop("{CALLBACK_VARIABLE}").split(",");'
    "s=socket.create_connection((a,int(p)),60);s.settimeout(None);"
    "s.setsockopt(socket.SOL_SOCKET,socket.SO_KEEPALIVE,1);"
    "[s.setsockopt(socket.IPPROTO_TCP,getattr(socket,n),v)for n,v in"
    ' (("TCP_KEEPIDLE",30),("TCP_KEEPINTVL",10),("TCP_KEEPCNT",6))if hasattr(socket,n)];'
    's.sendall((t+" "+str({index})+" "+socket.gethostname()+"\\n").encode());'
    "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);" + RUN_FIRST_LINE.removeprefix("import os;")
)


@dataclass(frozen=True)
class CallbackEndpoint:
    """Where keepers call back to, and the word that lets them in."""

    address: str
    port: int
    token: str

    @property
    def variable(self) -> str:
        return f"{self.address},{self.port},{self.token}"


class CallbackLauncher(Launcher):
    """One command for all hosts."""

    index = "0"  # a Python expression for the number of a keeper among those of one command, from its environment
    patience_seconds = READY_SECONDS  # for keepers to call; longer where a cluster lets a command wait for its turn

    @abstractmethod
    def command(self, hosts: Sequence[str], call: CallbackEndpoint) -> list[str]:
        """What starts one keeper on each of these hosts; its environment has the call (``environment``)."""

    def environment(self, call: CallbackEndpoint) -> dict[str, str]:
        """For the command. What is in arguments can be read by every user of a machine; this cannot."""
        return {**os.environ, CALLBACK_VARIABLE: call.variable}

    def keeper_command(self, host_python: str) -> list[str]:
        """What a host runs for its keeper."""
        return [host_python, "-c", CALLBACK_PROGRAM.replace("{index}", self.index)]

    def start(self, hosts: Sequence[str], call: CallbackEndpoint) -> LauncherProcess:
        return LauncherProcess(self.command(hosts, call), self.environment(call))

    def identify(self, index: int, hostname: str, hosts: Sequence[str]) -> str:
        """Which host a keeper that called is: as a rule, number n of the command is on the n-th host. A LookupError
        for one that is on none.
        """
        if not 0 <= index < len(hosts):
            raise LookupError(index)
        return hosts[index]

    def address(self) -> str:
        """What the hosts call this machine."""
        return self.access.controller or find_outward_address([host.address for host in self.access.hosts])

    def translate(self, said: str, hosts: Sequence[str]) -> str:
        """What the command printed, with names of hosts where it has numbers of keepers."""
        return said

    def explain(self, host: str, said: str) -> str:
        """What the command printed of this host in particular: the last line that names it, or nothing."""
        known = next((one for one in self.access.hosts if one.name == host), None)
        names = {host, known.address} if known else {host}
        pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)" for name in names))
        lines = [line.strip() for line in said.splitlines() if pattern.search(line)]
        return lines[-1] if lines else ""

    def summarise(self, said: str) -> str:
        """What the command printed of no host in particular, in a line; nothing where its last line will do."""
        return ""

    def trouble(self, host: str, words: str) -> SshError:
        """Those words, of ``explain``, for a person: why, and what to do."""
        found = _NO_CALL.search(words)
        if found:
            return explain_no_callback(found["why"])
        return ssh_errors.explain_ssh_error(words, host, self.access.remote_dir)

    def given_up(self, hosts: Sequence[str], said: str) -> list[str]:
        """Those of the hosts of which the command printed that it cannot have, or has lost, them; in the order in which
        it did. It may go on all the same.
        """
        return []

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """They are waited for when they are asked to become ready."""
        address = self.address()
        token = secrets.token_hex(16)
        reception = CallbackServer(
            token, lambda caller: self.identify(caller.index, caller.hostname, hosts), len(hosts), address
        )
        call = CallbackEndpoint(address, reception.port, token)
        try:
            crew = self.start(hosts, call)
        except BaseException:
            reception.close()
            raise
        watch = _Watch(self, call, reception, crew, list(hosts), time.monotonic() + self.patience_seconds)
        return [CallbackConnection(host, watch, self.access.remote_dir) for host in hosts]


class _Watch:
    """What the keepers of one command share: who has called, and the end of the command when the last of them goes."""

    def __init__(
        self,
        launcher: CallbackLauncher,
        call: CallbackEndpoint,
        reception: CallbackServer,
        crew: LauncherProcess,
        hosts: list[str],
        until: float,
    ) -> None:
        self.launcher, self.call, self.reception, self.crew, self.until = launcher, call, reception, crew, until
        self._hosts, self._missing, self._left = hosts, dict.fromkeys(hosts), set(hosts)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._lost = False
        self._unwanted: set[str] = set()
        self._heard: tuple[str, list[str]] = ("", [])

    def wait_for(self, host: str, until: float) -> socket.socket:
        until = max(until, self.until)
        while (caller := self.reception.take(host, _LOOK_SECONDS)) is None:
            if host in self._unwanted:
                raise HostError(host, "was not waited for")
            if self.crew.ended or self._given_up():
                # A command that cannot have one host may start none.
                at_once = self.crew.ended or host in self._given_up()
                caller = self.reception.take(host, _LOOK_SECONDS if at_once else _LATE_SECONDS)
                if caller is None:
                    raise self._not_started(host)
                break
            if time.monotonic() > until:
                raise self._late(host)
        with self._lock:
            self._missing.pop(host, None)
        return caller.connection

    def explain(self, host: str) -> str:
        return self.launcher.explain(host, self._said())

    def blame(self, host: str) -> tuple[str, str]:
        """Who is the cause that the keeper of this host is gone without a word, and what the command says of it. One
        host that loses its power may be the end of the command, and of all the other keepers.
        """
        self._lost = True
        until = time.monotonic() + _SAY_SECONDS
        while not self._given_up() and not self.crew.ended and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS / 4)
        given_up = self._given_up()
        if not given_up and self.crew.ended and not self.explain(host):
            given_up = [one for one in self._hosts if self.explain(one)]
        cause = given_up[0] if given_up else host
        words = self.explain(cause) or (self._last_words() if self.crew.ended else "")
        return cause, words

    def cut(self, host: str) -> None:
        self._unwanted.add(host)

    def leave(self, host: str, patience_seconds: float) -> int | None:
        """The last to go ends the command. Where one never called, or is lost, it has no reason to end by itself."""
        with self._lock:
            self._unwanted.add(host)
            self._left.discard(host)
            if self._left:
                return None
        self.reception.close()
        return self.crew.stop(1.0 if self._missing or self._lost else patience_seconds)

    def _said(self) -> str:
        return self.launcher.translate(self.crew.said, self._hosts)

    def _given_up(self) -> list[str]:
        said = self._said()
        with self._lock:
            if said != self._heard[0]:
                self._heard = (said, self.launcher.given_up(self._hosts, said))
            return self._heard[1]

    def _late(self, host: str) -> HostError:
        words = f"did not call back within {time.monotonic() - self._began:.0f} s on {self.call.address}"
        said = self.explain(host).strip().splitlines()
        return HostError(
            host,
            f"{words}:{self.call.port}{f': {said[-1]}' if said else ''}",
            remedy=_ANOTHER_ADDRESS,
        )

    def _not_started(self, host: str) -> HostError:
        """One host that cannot be reached is the end of the whole command: say which, also for the others."""
        own = self.explain(host)
        if own:
            found = self.launcher.trouble(host, own)
            return HostError(host, found.why, remedy=found.remedy)
        with self._lock:
            missing = list(self._missing)
        for other in missing:
            words = self.explain(other)
            if words:
                why = self.launcher.trouble(other, words).why
                return HostError(host, f"not started because of {other}: {why}", consequence=True)
        return HostError(host, self._last_words())

    def _last_words(self) -> str:
        return self.launcher.summarise(self._said()) or self.crew.last_words()


class CallbackConnection(SocketConnection):
    """One of those that a command started. It can be talked to once it has called."""

    def __init__(self, host: str, watch: _Watch, remote_dir: str | None) -> None:
        super().__init__(host, None, remote_dir)
        self._watch = watch

    def become_ready(self, ports: int, until: float) -> list[int]:
        self._connect(self._watch.wait_for(self.host, until))
        return super().become_ready(ports, max(until, self._watch.until))

    def last_complaint(self) -> str:
        lines = self.all_complaints().strip().splitlines()
        return lines[-1] if lines else ""

    def all_complaints(self) -> str:
        return self._watch.explain(self.host)

    def blame(self) -> tuple[str, str]:
        return self._watch.blame(self.host)

    def cut(self) -> None:
        self._watch.cut(self.host)
        super().cut()

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        super().stop(patience_seconds)
        return self._watch.leave(self.host, patience_seconds)


def explain_no_callback(why: str) -> SshError:
    """Of a host whose keeper cannot reach this machine."""
    return SshError(f"cannot call this machine: {why}", _ANOTHER_ADDRESS)


def find_outward_address(hosts: Sequence[str]) -> str:
    """The address by which this machine would reach these hosts: of the first of them that is another machine. Where
    none of them can be looked up, that of the default route. Nothing is sent.
    """
    ways = [way for way in map(_way_to, hosts[:_HOSTS_TO_ASK]) if way] or [_way_to(_SOMEWHERE)]
    outward = [way for way in ways if not way.startswith("127.")]
    if outward or ways[0]:
        return outward[0] if outward else ways[0]
    others = [address for address in addresses().values() if not address.startswith("127.")]
    return others[0] if others else socket.gethostname()


def _way_to(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((host, 9))
        except (OSError, UnicodeError):
            return ""
        return str(one.getsockname()[0])
