"""Launchers whose one command starts the keepers of all hosts (mpirun, srun). Each keeper then calls back.

Its environment has an address and a one-time token. A keeper sends the token, its index and its host's name.
Then the connection is its standard input and output, as over ssh.
"""

import os
import re
import secrets
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...worker.inspection.host import list_addresses
from ..callback import CallbackServer, LauncherProcess
from ..connection import HostError, KeeperConnection, SocketConnection
from ..ssh_errors import OTHER_ADDRESS, explain_ssh_error
from ..worker_archive import RUN_FIRST_LINE
from .base import Launcher

CALLBACK_VARIABLE = "TRAINSCALE_CALL"
_LATE_SECONDS = 3.0  # for a keeper to call after another host failed
_REPORT_SECONDS = 5.0  # for the command to report why it lost its first keeper
_POLL_SECONDS = 0.2
_DOCUMENTATION_ADDRESS = "198.51.100.1"  # only the default route leads there


@dataclass(frozen=True)
class CallbackEndpoint:
    """Where keepers call back to, and the token that admits them."""

    address: str
    port: int
    token: str

    @property
    def variable(self) -> str:
        return f"{self.address},{self.port},{self.token}"


def make_callback_program(index: str, name: str = "socket.gethostname()", address: str = '""') -> str:
    """Return the program that makes a host a keeper. The arguments are expressions of Python, for the host."""
    # Ranks must not see the token, so it is taken out of the environment.
    return (
        "import os,socket,sys;"
        f'a,p,t=os.environ.pop("{CALLBACK_VARIABLE}").split(",");'
        'sys.excepthook=lambda k,e,b:print("cannot call",a+":"+p+":",e,file=sys.stderr);'
        "s=socket.create_connection((a,int(p)),60);s.settimeout(None);sys.excepthook=sys.__excepthook__;"
        "s.setsockopt(socket.SOL_SOCKET,socket.SO_KEEPALIVE,1);"
        "[s.setsockopt(socket.IPPROTO_TCP,getattr(socket,n),v)for n,v in"
        ' (("TCP_KEEPIDLE",30),("TCP_KEEPINTVL",10),("TCP_KEEPCNT",6))if hasattr(socket,n)];'
        f's.sendall(" ".join((t,str({index}),{name},{address}+"\\n")).encode());'
        "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);" + RUN_FIRST_LINE.removeprefix("import os;")
    )


@dataclass(frozen=True)
class CommandReport:
    """What a command that starts keepers has printed."""

    by_host: Mapping[str, str] = field(default_factory=dict)  # what concerns a host, if anything does
    failed: Sequence[str] = ()  # hosts that are lost or unreachable, in this order
    summary: str = ""  # one line about no particular host; empty if the last line will do
    end_notice: str = ""  # that the command was told to end, before a keeper had ended


class CallbackLauncher(Launcher):
    index = "0"  # a Python expression for the number of a keeper
    hostname = "socket.gethostname()"  # and for the name of its host

    @abstractmethod
    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]: ...

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the command's environment. Unlike its arguments, no other user can read it."""
        return {**os.environ, CALLBACK_VARIABLE: endpoint.variable}

    def keeper_command(self, host_python: str) -> list[str]:
        return [host_python, "-c", make_callback_program(self.index, self.hostname)]

    def start(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> LauncherProcess:
        return LauncherProcess(self.command(hosts, endpoint), self.environment(endpoint))

    def identify(self, index: int, hostname: str, hosts: Sequence[str]) -> str:
        """Return which host a keeper is: by default the n-th. A LookupError refuses it."""
        if not 0 <= index < len(hosts):
            raise LookupError(index)
        return hosts[index]

    def controller_address(self) -> str:
        addresses = [host.address for host in self.access.hosts]
        return self.access.controller or find_outward_address(addresses)

    def read_output(self, output: str, hosts: Sequence[str]) -> CommandReport:
        """By default, the last line that names a host concerns it."""
        by_host = {}
        for host in hosts:
            names = {host, *(known.address for known in self.access.hosts if known.name == host)}
            pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?![\w-]|\.\w)")
            lines = [line.strip() for line in output.splitlines() if pattern.search(line)]
            if lines:
                by_host[host] = lines[-1]
        return CommandReport(by_host)

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """Start the command. ``become_ready`` waits for each keeper."""
        session = CallbackSession(self, list(hosts))
        return [CallbackConnection(host, session, self.access.remote_dir) for host in hosts]


class CallbackSession:
    """A running command. The last of its connections to stop ends it."""

    def __init__(self, launcher: CallbackLauncher, hosts: list[str]) -> None:
        address, token = launcher.controller_address(), secrets.token_hex(16)
        self._launcher, self._hosts = launcher, hosts
        self._server = CallbackServer(
            token, lambda caller: launcher.identify(caller.index, caller.hostname, hosts), len(hosts), address
        )
        self._endpoint = CallbackEndpoint(address, self._server.port, token)
        try:
            self._process = launcher.start(hosts, self._endpoint)
        except BaseException:
            self._server.close()
            raise
        self._started = time.monotonic()
        self._not_called = dict.fromkeys(hosts)
        self._not_stopped = set(hosts)
        self._report_deadline: float | None = None  # None until a keeper is lost
        self._read_output = lru_cache(1)(lambda output: launcher.read_output(output, hosts))

    @property
    def report(self) -> CommandReport:
        return self._read_output(self._process.output)

    def wait_for(self, host: str, deadline: float) -> socket.socket:
        """Raise a HostError if the keeper does not call."""
        while (caller := self._server.take(host, _POLL_SECONDS)) is None:
            if host not in self._not_stopped:
                raise HostError(host, "was not waited for")
            has_ended, failed = self._process.has_ended, self.report.failed
            if has_ended or failed:
                # A command that cannot start one keeper may start none of them.
                is_hopeless = has_ended or host in failed
                caller = self._server.take(host, _POLL_SECONDS if is_hopeless else _LATE_SECONDS)
                if caller is None:
                    raise self.explain_end(host)
                break
            if time.monotonic() > deadline:
                if reason := self._find_own_failure():
                    raise HostError("", reason)
                seconds, endpoint = time.monotonic() - self._started, self._endpoint
                within = f"within {seconds:.0f} s on {endpoint.address}:{endpoint.port}"
                lines = self.report.by_host.get(host, "").splitlines()
                if not lines and len(self._not_called) == len(self._hosts):
                    message = f"no keeper that {self._process.program} should start called {within}"
                    raise HostError("", message, remedy=OTHER_ADDRESS)
                last_line = f": {lines[-1]}" if lines else ""
                raise HostError(host, f"did not call back {within}{last_line}", remedy=OTHER_ADDRESS)
        self._not_called.pop(host, None)
        return caller.connection

    def find_cause(self, host: str, was_told_to_end: bool = False) -> tuple[str, str]:
        """Return the host that caused the loss, "" if none did, and what the command printed about it."""
        process = self._process
        if self._report_deadline is None:
            self._report_deadline = time.monotonic() + _REPORT_SECONDS
        while not (self.report.failed or process.has_ended or time.monotonic() > self._report_deadline):
            time.sleep(_POLL_SECONDS / 4)
        if reason := self._find_own_failure():
            return "", reason
        has_ended, report = process.has_ended, self.report
        not_called = list(self._not_called)  # a copy: other threads take hosts out
        candidates = [host] if host in not_called else [*report.failed, host]
        for other in (*candidates, *not_called, *(self._hosts if has_ended else ())):
            if other in report.by_host:
                return other, report.by_host[other]
        if has_ended:
            return "", report.summary or process.explain_exit()
        if was_told_to_end:
            return "", f"a keeper was told to end, and {process.program} has not said why"
        return host, ""

    def explain_end(self, host: str) -> HostError:
        cause, reason = self.find_cause(host)
        if not cause:
            return HostError("", reason)
        error = explain_ssh_error(reason, cause, self._launcher.access.remote_dir)
        if cause != host:
            return HostError(host, f"not started because of {cause}: {error.why}", consequence=True)
        return error

    def _find_own_failure(self) -> str:
        """Say that somebody ended or stopped the command itself; empty if nobody did."""
        process = self._process
        if (process.exit_code or 0) < 0:
            return process.explain_exit()
        if process.is_stopped:
            name = f"{process.program} (process {process.pid})"
            return f"{name} is stopped, so it does not start or end keepers"
        return self.report.end_notice

    def cancel(self, host: str) -> bool:
        """Wait for this host no longer. Return whether it was the last one."""
        self._not_stopped.discard(host)
        return not self._not_stopped

    def release(self, host: str, patience_seconds: float) -> None:
        """With the last connection, end the command."""
        if self.cancel(host):
            self._server.close()
            is_broken = self._not_called or self._report_deadline
            self._process.stop(1.0 if is_broken else patience_seconds)


class CallbackConnection(SocketConnection):
    """A keeper that a command started. It can be used once it has called."""

    def __init__(self, host: str, session: CallbackSession, remote_dir: str | None) -> None:
        super().__init__(host, None, remote_dir)
        self._session = session

    def become_ready(self, deadline: float) -> None:
        self._connection = self.output = self._session.wait_for(self.host, deadline)
        super().become_ready(deadline)

    def stderr_text(self) -> str:
        return self._session.report.by_host.get(self.host, "")

    def explain_loss(self, was_told_to_end: bool) -> tuple[str, str]:
        return self._session.find_cause(self.host, was_told_to_end)

    def _explain_end(self) -> HostError:
        return self._session.explain_end(self.host)

    def cut(self) -> None:
        self._session.cancel(self.host)
        super().cut()

    def stop(self, patience_seconds: float = 10.0) -> None:
        super().stop(patience_seconds)
        self._session.release(self.host, patience_seconds)


def find_outward_address(hosts: Sequence[str]) -> str:
    """Return this machine's address towards the first host, or the default route."""
    own = [address for address in map(_find_own_address, hosts[:8]) if address]
    own = own or [_find_own_address(_DOCUMENTATION_ADDRESS)]
    candidates = own if own[0] else [*list_addresses().values()]
    default = own[0] or socket.gethostname()
    return next((address for address in candidates if not address.startswith("127.")), default)


def _find_own_address(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except (OSError, UnicodeError):
            return ""
        return str(probe.getsockname()[0])
