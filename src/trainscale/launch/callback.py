"""Launchers whose one command starts the keepers of all hosts (mpirun, srun, YARN, Ray): each keeper calls back.

The command carries an address and a one-time token in the environment. A keeper connects, says the token, its index
among those that the command started, and the name of its host; from then on the connection is its standard input and
output, and what follows is as over ssh.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .archive import RUN_FIRST_LINE
from .base import Launcher
from .keepers import READY_SECONDS, HostError, Keeper, SocketKeeper

VARIABLE = "TRAINSCALE_CALL"
_COMPLAINTS = 4096
_GREETING = 1024  # bytes that a caller may say before it is let in
_GREETING_SECONDS = 10.0

# What every host runs: connect, say who this is, be that connection. {index} is an expression for this keeper's number.
CALL_BACK = (
    "import os,socket;"
    f'a,p,t=os.environ["{VARIABLE}"].split(",");'
    "s=socket.create_connection((a,int(p)),60);s.settimeout(None);"
    "s.setsockopt(socket.SOL_SOCKET,socket.SO_KEEPALIVE,1);"
    's.sendall((t+" "+str({index})+" "+socket.gethostname()+"\\n").encode());'
    "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);" + RUN_FIRST_LINE.removeprefix("import os;")
)


@dataclass(frozen=True)
class Call:
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

    @abstractmethod
    def command(self, hosts: Sequence[str], call: Call) -> list[str]:
        """What starts one keeper on each of these hosts; its environment has the call (``environment``)."""

    def environment(self, call: Call) -> dict[str, str]:
        """For the command. What is in arguments can be read by every user of a machine; this cannot."""
        return {**os.environ, VARIABLE: call.variable}

    def keeper_command(self, host_python: str) -> list[str]:
        """What a host runs for its keeper."""
        return [host_python, "-c", CALL_BACK.replace("{index}", self.index)]

    def identify(self, index: int, hostname: str, hosts: Sequence[str]) -> str:
        """Which host a keeper that called is: as a rule, number n of the command is on the n-th host."""
        return hosts[index]

    def address(self) -> str:
        """What the hosts call this machine."""
        return self.where.controller or outward_address([host.address for host in self.where.hosts])

    def open(self, hosts: Sequence[str]) -> list[Keeper]:
        """Waits until all have called: before that there is nobody to talk to."""
        with socket.create_server(("", 0), backlog=len(hosts)) as server:
            call = Call(self.address(), server.getsockname()[1], secrets.token_hex(16))
            crew = Crew(self.command(hosts, call), self.environment(call))
            try:
                callers = self._gather(server, call, hosts, crew)
            except BaseException:
                crew.stop()
                raise
        keepers: list[Keeper] = [
            _CrewKeeper(host, callers[host], self.where.remote_dir, crew if host == hosts[-1] else None)
            for host in hosts
        ]
        return keepers

    def _gather(
        self, server: socket.socket, call: Call, hosts: Sequence[str], crew: Crew
    ) -> Mapping[str, socket.socket]:
        callers: dict[str, socket.socket] = {}
        until = time.monotonic() + self.patience_seconds
        try:
            while len(callers) < len(hosts):
                missing = [host for host in hosts if host not in callers]
                if crew.ended:
                    raise HostError(missing[0], crew.last_complaint() or "the launching command ended without a word")
                if time.monotonic() > until:
                    words = f"did not call back within {self.patience_seconds:.0f} s on {call.address}:{call.port}"
                    raise HostError(missing[0], f"{words}; is there a firewall in between? {crew.last_complaint()}")
                if not select.select([server], [], [], 0.2)[0]:
                    continue
                found = self._admit(server, call, hosts)
                if found is not None and found[0] not in callers:
                    callers[found[0]] = found[1]
        except BaseException:
            for connection in callers.values():
                connection.close()
            raise
        return callers

    patience_seconds = READY_SECONDS

    def _admit(self, server: socket.socket, call: Call, hosts: Sequence[str]) -> tuple[str, socket.socket] | None:
        """A caller with the right token; a stranger is sent away."""
        connection, _ = server.accept()
        connection.settimeout(_GREETING_SECONDS)
        said = b""
        try:
            while not said.endswith(b"\n") and len(said) < _GREETING:
                piece = connection.recv(1)
                if not piece:
                    break
                said += piece
            token, index, hostname = said.decode().split()
            if not secrets.compare_digest(token, call.token):
                raise ValueError
            host = self.identify(int(index), hostname, hosts)
        except (OSError, ValueError, IndexError):
            connection.close()
            return None
        connection.settimeout(None)
        _notice_death(connection)
        return host, connection


class Crew:
    """The command that started the keepers, as a process of this machine."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
        )
        self._said = b""

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    def last_complaint(self) -> str:
        assert self._popen.stdout is not None
        while select.select([self._popen.stdout], [], [], 0.1)[0]:
            piece = os.read(self._popen.stdout.fileno(), _COMPLAINTS)
            if not piece:
                break
            self._said = (self._said + piece)[-_COMPLAINTS:]
        lines = [line.strip() for line in self._said.decode(errors="replace").splitlines() if line.strip(" -=\r")]
        return lines[-1] if lines else ""

    def stop(self, patience_seconds: float = 10.0) -> int:
        """Its keepers end by themselves when their connections close, and it with them."""
        assert self._popen.stdout is not None
        try:
            return self._popen.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._popen.terminate()
            try:
                return self._popen.wait(patience_seconds)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                return self._popen.wait()
        finally:
            self._popen.stdout.close()


class _CrewKeeper(SocketKeeper):
    """The last of a crew also ends the command that started them all."""

    def __init__(self, host: str, connection: socket.socket, remote_dir: str, crew: Crew | None) -> None:
        super().__init__(host, connection, remote_dir)
        self._crew = crew

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        super().stop(patience_seconds)
        return self._crew.stop(patience_seconds) if self._crew else None


def outward_address(hosts: Sequence[str]) -> str:
    """The address by which this machine would reach the first of these hosts. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for host in hosts:
            try:
                one.connect((host, 9))
            except OSError:
                continue
            return str(one.getsockname()[0])
    return socket.gethostname()


def _notice_death(connection: socket.socket) -> None:
    """A host that loses its power says nothing: ask the system to find out within seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
