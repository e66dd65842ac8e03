"""The command that starts keepers (mpirun, srun, yarn, ray_client.py), and the server that they call back."""

import hmac
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import TrainscaleError
from ..worker.listening import Greeting, GreetingReader, listen
from .connection import describe_exit, find_last_line

_OUTPUT_BYTES = 65536  # how much of the end of the command's output is kept
_POLL_SECONDS = 0.05
_TERMINATE_SECONDS = 5.0  # for a command to end after SIGTERM
# The system then notices within seconds that the other machine lost its power.
_LOST_PEER_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
# The system ends the command when this process dies, as by kill -9. If it died before setpriv asked for that,
# the command does not start.
_END_WITH_CONTROLLER = (
    *("setpriv", "--pdeathsig", "TERM", "--"),
    *("/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"'),
)


class LauncherProcess:
    """The running command. It ends when its keepers end, and they when their connections close."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        if shutil.which(command[0]) is None:
            raise TrainscaleError(f"cannot start {command[0]}: there is no such program on the PATH")
        wrapper = [*_END_WITH_CONTROLLER, str(os.getpid())] if shutil.which("setpriv") else []
        try:
            # A session of its own: the controller handles Ctrl-C, and can end all that the command started.
            self._popen = subprocess.Popen(
                [*wrapper, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(environment),
            )
        except OSError as error:
            raise TrainscaleError(f"cannot start {command[0]}: {error.strerror}") from None
        self.command, self.program, self.pid = command, Path(command[0]).name, self._popen.pid
        self._lock = threading.Lock()
        self._output = b""
        self._reader = threading.Thread(target=self._read_output, name="launcher output", daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal, None while the command runs. The process is not reaped."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self._popen.returncode or 0  # it was reaped a moment ago
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP or a terminal has stopped it."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")

    @property
    def output(self) -> str:
        """The end of what it has printed so far."""
        if self.has_ended:
            self._reader.join(1.0)
        return self._output.decode(errors="replace")

    def explain_exit(self) -> str:
        code = self.exit_code
        if code is not None and code < 0:
            return f"{self.program} {describe_exit(code)}"
        with_code = f" with exit code {code}" if code is not None else ""
        return find_last_line(self.output) or f"{self.program} ended{with_code}, without a message"

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self.has_ended:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, patience_seconds: float = 10.0) -> None:
        """Wait for the end, then ask for it, then force it, also for what it started here."""
        with self._lock:
            if self._popen.returncode is not None:
                return
            if not self.wait(patience_seconds):
                self._popen.terminate()
                self.wait(max(patience_seconds, _TERMINATE_SECONDS))
            # No other process can have the number of its session before it is reaped.
            for entry in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, IndexError, ValueError):  # the process ended meanwhile
                    session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                    if session == self.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
            self._popen.kill()
            self._popen.wait()
        self._reader.join(5.0)

    def _read_output(self) -> None:
        """Keep reading, because a full pipe would block the command."""
        assert self._popen.stdout is not None
        with self._popen.stdout as stream:
            while piece := os.read(stream.fileno(), 65536):
                self._output = (self._output + piece)[-_OUTPUT_BYTES:]


@dataclass(frozen=True)
class Caller:
    """What a keeper said about itself."""

    index: int  # among those that one command started
    hostname: str
    address: str  # that it stated, else from which it calls
    called: str  # the address of this machine that it called
    connection: socket.socket


class CallbackServer:
    """Admits callers that know the token, each host once. ``identify`` may refuse one by a LookupError."""

    def __init__(
        self, token: str, identify: Callable[[Caller], str], expected: int | None = None, address: str = ""
    ) -> None:
        self._token = token.encode()
        self._identify = identify
        self._expected = expected
        self._server = listen(address)
        self.port = self._server.getsockname()[1]
        self._waiting: dict[str, Caller] = {}
        self._accepted: set[str] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="callback server", daemon=True)
        self._thread.start()

    def take(self, host: str, seconds: float) -> Caller | None:
        """Return the keeper of that host, or None if it does not call in time."""
        with self._changed:
            self._changed.wait_for(lambda: host in self._waiting or self._is_closed, max(0.0, seconds))
            return self._waiting.pop(host, None)

    def wait_for_callers(self, count: int, seconds: float) -> list[Caller]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= count or self._is_closed, max(0.0, seconds))
            return list(self._waiting.values())

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        for caller in self._waiting.values():
            caller.connection.close()

    def _serve(self) -> None:
        """Run until close(), or until all expected hosts were accepted."""
        reader = GreetingReader(self._server)
        while not self._is_closed and (self._expected is None or len(self._accepted) < self._expected):
            greeting = reader.wait_for_greeting(_POLL_SECONDS)
            if greeting is not None and not self._admit(greeting):
                greeting.connection.close()
        reader.close()

    def _admit(self, greeting: Greeting) -> bool:
        connection = greeting.connection
        try:
            token, index, hostname, *stated = greeting.received.split()
            if not hmac.compare_digest(token, self._token):
                return False
            caller = Caller(
                int(index),
                hostname.decode(),
                stated[0].decode() if stated else connection.getpeername()[0],
                connection.getsockname()[0],
                connection,
            )
            host = self._identify(caller)
            connection.setblocking(True)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, value in _LOST_PEER_OPTIONS.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        except (OSError, ValueError, LookupError):
            return False
        with self._changed:
            if host in self._accepted or self._is_closed:
                return False
            self._waiting[host] = caller
            self._accepted.add(host)
            self._changed.notify_all()
        return True
