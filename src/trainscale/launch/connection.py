"""The connection to one keeper: the pipes of a command, mostly an ssh, or a socket on which the keeper called back.

connected_hosts.py has all keepers of a trial. Lines are decoded into the events of worker/events.py.
"""

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TypeVar

from ..errors import TrainscaleError
from ..record.decoding import DecodingError, convert
from ..worker.events import EVENTS, MARK, Bootstrap, Event, Ports
from ..worker.job import PortsRequest, encode_request

READY_SECONDS = 120.0  # to connect, to wake up a file system, to copy the worker over a slow link
_NOISE_LINES = 200  # that a login shell may print before the keeper answers
_STDERR_BYTES = 4096  # of the end of standard error, that are shown
_LAST_LINES_SECONDS = 0.5  # for a command to end after its output
_REUSE_SECONDS = 10.0  # for an idle keeper to answer

AnyEvent = TypeVar("AnyEvent", bound=Event)


# ---- events


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of a kind that this version does not know."""

    event_kind: str
    problem: str = ""  # why it cannot be decoded, if its kind is known


@dataclass(frozen=True)
class ReceivedEvent:
    """An event with the host that sent it."""

    host: str
    event: Event
    rank: int | None = None  # of an event of a task
    sequence: int | None = None  # of an event that a rank sent itself


@dataclass(frozen=True)
class HostLost(Event):
    """A keeper has ended without its last event."""

    culprit: str  # the host that caused it; empty if no host did, or nobody knows
    stderr_tail: tuple[str, ...] = ()
    was_ended: bool = False  # by a signal: mpirun ends all keepers when it loses one of them


def decode_line(line: str, host: str = "") -> ReceivedEvent | None:
    """Return the event in a line, or None if the line holds none."""
    if not line.startswith(MARK):
        return None
    try:
        values = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):  # a rank may print anything
        return None
    if not isinstance(values, dict) or "kind" not in values:
        return None
    kind, rank, sequence = str(values["kind"]), values.get("rank"), values.get("seq")
    event: Event
    try:
        event = convert(values, EVENTS[kind]) if kind in EVENTS else UnknownEvent(kind)
    except DecodingError as error:
        event = UnknownEvent(kind, str(error))
    rank = rank if isinstance(rank, int) else None
    return ReceivedEvent(host, event, rank, sequence if isinstance(sequence, int) else None)


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def find_last_line(output: str) -> str:
    """Return the last line that is not only blanks or a ruler."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -=*\t\r")]
    return lines[-1] if lines else ""


def describe_exit(code: int) -> str:
    """Return "was ended by SIGKILL" or "ended with exit code 3"."""
    return f"was ended by {name_signal(-code)}" if code < 0 else f"ended with exit code {code}"


# ---- errors of hosts


class HostError(TrainscaleError):
    """Why a host, or else the command of all hosts, cannot be used. Another host caused a ``consequence``."""

    def __init__(self, host: str, message: str, consequence: bool = False, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (f"{host}: {message}" if host else message, remedy))))
        self.host, self.why, self.remedy = host, message, remedy
        self.consequence = consequence


class NoFreePorts(HostError): ...


def select_causes(errors: Iterable[HostError]) -> list[HostError]:
    """Return the errors that are no consequences, else all. Each text is there once."""
    by_text = {str(error): error for error in errors}
    return [error for error in by_text.values() if not error.consequence] or list(by_text.values())


# ---- connections


class KeeperConnection(ABC):
    """Closing its input ends the keeper and everything that it started."""

    output: IO[bytes] | socket.socket  # events
    copied: bool | None = None  # whether the worker had to be copied, once that is known
    clock_ahead_seconds: tuple[float, float] | None = None  # at least, at most
    late_remedy = ""  # what to do about a host that does not answer in time

    def __init__(self, host: str, remote_dir: str | None = None) -> None:
        """``remote_dir`` is the folder for the worker, where the host needs a copy."""
        if remote_dir is not None:
            from .worker_archive import build_archive

            build_archive()  # once, before the threads of all hosts
        self.host, self.remote_dir = host, remote_dir
        self._incomplete = b""  # the beginning of a line
        self.pending: list[ReceivedEvent] = []  # received, and not awaited yet
        self._noise_lines = 0  # lines that are no events
        self._last_noise = ""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Ask the keeper to end. Its last events can still be read."""

    @abstractmethod
    def stop(self, patience_seconds: float = 10.0) -> None:
        """End the keeper and wait for it."""

    @abstractmethod
    def cut(self) -> None:
        """End the connection at once; a pending read sees its end."""

    def stderr_text(self) -> str:
        return ""

    def explain_loss(self, was_told_to_end: bool) -> tuple[str, str]:
        """Return the host that caused the loss, empty if unknown, and an explanation."""
        return self.host, self.stderr_text()

    def become_ready(self, deadline: float) -> None:
        """Copy the worker if necessary, and wait until the keeper answers."""
        if self.remote_dir is not None and self.copied is None:
            from .worker_archive import build_archive, make_bootstrap_line

            self.write(make_bootstrap_line(self.remote_dir, "keeper"))
            answer = self._await(Bootstrap, deadline)
            self.copied = answer.has is False
            if self.copied:
                self.write(build_archive().data)
            if not answer.error:
                answer = self._await(Bootstrap, deadline)
            if answer.error:
                raise self._explain(answer.error)
        # The host reads its clock between question and answer.
        bounds = []
        for _ in range(5):
            before = time.time()
            clock, after = self._ask_ports(0, deadline).clock, time.time()
            bounds.append((clock - after, clock - before))
        self.clock_ahead_seconds = narrow_clock_bounds(bounds)

    def find_ports(self, count: int, deadline: float) -> list[int]:
        answer = self._ask_ports(count, deadline)
        if answer.error:
            raise NoFreePorts(self.host, answer.error)
        return answer.ports

    def _ask_ports(self, count: int, deadline: float) -> Ports:
        self.write(encode_request(PortsRequest(count)))
        return self._await(Ports, deadline)

    def receive(self) -> list[ReceivedEvent] | None:
        """Read what is available and return its events; None at the end of the output."""
        try:
            data = os.read(self.output.fileno(), 65536)
        except OSError:  # a connection whose other end lost its power
            return None
        if not data:
            return None
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        events = []
        for line in lines:
            text = line.decode(errors="replace")
            _, mark, values = text.partition(MARK)  # a login shell may print a prompt before it
            event = decode_line(mark + values, self.host)
            if event is not None:
                events.append(event)
            else:
                self._noise_lines += 1
                self._last_noise = text.strip() or self._last_noise
        return events

    def _await(self, kind: type[AnyEvent], deadline: float) -> AnyEvent:
        """Return the next event of this kind. A login shell may print lines before it."""
        most_noise = self._noise_lines + _NOISE_LINES
        while True:
            while self.pending:
                event = self.pending.pop(0).event
                if isinstance(event, kind):
                    return event
            if self._noise_lines >= most_noise:
                raise HostError(self.host, f"answers, but not as a keeper does: {self._last_noise}")
            poll = select.poll()  # unlike select(), it works with any number of a file
            poll.register(self.output, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                if time.monotonic() >= deadline:
                    stderr = find_last_line(self.stderr_text())
                    message = f"no answer in time{f': {stderr}' if stderr else ''}"
                    raise HostError(self.host, message, remedy=self.late_remedy)
                continue
            events = self.receive()
            if events is None:
                raise self._explain_end()
            self.pending += events

    def _explain_end(self) -> HostError:
        return self._explain("\n".join(filter(None, (self._last_noise, self.stderr_text()))))

    def _explain(self, message: str) -> HostError:
        from .ssh_errors import explain_ssh_error

        return explain_ssh_error(message, self.host, self.remote_dir or "its folder")


class PipeConnection(KeeperConnection):
    """A keeper behind the pipes of a command, which ``become_ready`` starts."""

    _input: IO[bytes]
    output: IO[bytes]
    _errors: IO[bytes]  # a file, because a pipe that nobody reads could become full

    def __init__(self, host: str, command: list[str], remote_dir: str | None = None) -> None:
        super().__init__(host, remote_dir)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cut = False
        if remote_dir is not None:
            test = f"does it answer at once to: ssh {host} true?"
            self.late_remedy = f"{test} Set-up lines and login scripts count too"

    def become_ready(self, deadline: float) -> None:
        if self._process is not None:
            try:
                self._ask_ports(0, min(deadline, time.monotonic() + _REUSE_SECONDS))
                return
            except HostError:
                self.stop(0.0)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # A session of its own: Ctrl-C reaches only the controller.
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise TrainscaleError(f"cannot start {self._command[0]} here: {error.strerror}") from None
        if self._is_cut:
            self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self.output, self.pid = self._process.stdin, self._process.stdout, self._process.pid
        self._incomplete, self.pending, self.copied = b"", [], None
        super().become_ready(deadline)

    def write(self, data: bytes) -> None:
        if self._process is None:
            return
        with suppress(BrokenPipeError, ValueError):  # it has ended; reading its output shows that
            while data:
                data = data[self._input.write(data) or 0 :]

    def stderr_text(self) -> str:
        if self._process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_LINES_SECONDS)
        file = self._errors.fileno()
        begin = max(0, os.fstat(file).st_size - _STDERR_BYTES)
        return os.pread(file, _STDERR_BYTES, begin).decode(errors="replace")

    def close(self) -> None:
        if self._process is not None:
            self._input.close()

    def cut(self) -> None:
        self._is_cut = True
        if self._process is not None:
            self._process.kill()

    def stop(self, patience_seconds: float = 10.0) -> None:
        if self._process is None:
            return
        self.close()
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the system ends its ranks with it
            self._process.wait()
        self.output.close()
        self._errors.close()


class SocketConnection(KeeperConnection):
    """A keeper that called back. This does not end the command that started it."""

    def __init__(self, host: str, connection: socket.socket | None, remote_dir: str | None = None) -> None:
        """Without a connection, the keeper has not called yet."""
        super().__init__(host, remote_dir)
        self._connection = connection
        if connection is not None:
            self.output = connection

    def write(self, data: bytes) -> None:
        if self._connection is not None:
            with suppress(OSError):  # reading shows the end
                self._connection.sendall(data)

    def close(self) -> None:
        self._shut_down(socket.SHUT_WR)

    def cut(self) -> None:
        self._shut_down(socket.SHUT_RDWR)

    def _shut_down(self, direction: int) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(direction)

    def stop(self, patience_seconds: float = 10.0) -> None:
        self.close()
        if self._connection is None:
            return
        deadline = time.monotonic() + patience_seconds
        with suppress(OSError):
            while (seconds := deadline - time.monotonic()) > 0:  # it may go on sending
                self._connection.settimeout(seconds)
                if not self._connection.recv(65536):
                    break
        self._connection.close()


def stop_all(connections: Sequence[KeeperConnection], patience_seconds: float = 10.0) -> None:
    """End all keepers at the same time, and wait for each."""
    for connection in connections:
        connection.close()
    threads = [threading.Thread(target=each.stop, args=(patience_seconds,), daemon=True) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def narrow_clock_bounds(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the intersection; the last bounds, if the clock was set in between."""
    least, most = max(low for low, _ in bounds), min(high for _, high in bounds)
    return (least, most) if least <= most else bounds[-1]
