"""A running keeper as the controller holds it: what it is asked, what it is sent, how it is ended.

A keeper speaks over pipes (of a local process, of an ssh) or over a socket on which it called back; both are two files
here. Whoever starts keepers calls ``ready`` for all of them at once.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import TrainscaleError
from ...worker.events import MARK, decode
from .fan_out import Crowd
from .ssh_errors import explain_ssh_error
from .worker_archive import bootstrap_line, build_archive

READY_SECONDS = 120.0  # for ssh to connect, a file system to wake up, the worker to be copied over a slow line
_COMPLAINTS = 4096  # bytes of what a command printed that are kept
_NOISE = 200  # lines that a login shell may print before the keeper speaks


class HostError(TrainscaleError):
    """A host cannot be used. ``host`` is its name; the message says why, and what to do where that is known. A
    ``consequence`` is of another's failure.
    """

    exit_code = 1

    def __init__(self, host: str, message: str, consequence: bool = False, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}{f'; {remedy}' if remedy else ''}")
        self.host, self.why, self.remedy = host, message, remedy
        self.consequence = consequence


def causes(errors: Iterable[HostError]) -> list[HostError]:
    """Without the consequences, where there is anything else."""
    found = list(errors)
    return [error for error in found if not error.consequence] or found


class Readable(Protocol):
    def fileno(self) -> int: ...


class KeeperConnection(ABC):
    """Closing its input ends it and all that it started."""

    host: str
    output: Readable  # events
    complaints: Readable | None = None  # of the keeper itself, or of what was to start it
    remote_dir: str | None = None  # set where the worker has to be carried to the host first
    copied: bool | None = None  # whether it had to be, once that is known
    ahead_seconds: tuple[float, float] | None = None  # least and most by which the host's clock is, where it was asked

    def __init__(self) -> None:
        self._left_over = b""
        self._noise = ""  # the last line that was no event

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Ask for the end; the keeper's last words can still be read from ``output``."""

    @abstractmethod
    def stop(self, patience_seconds: float = 10.0) -> int | None:
        """End it and wait for it. Returns an exit code where there is one."""

    @abstractmethod
    def cut(self) -> None:
        """End the connection at once; whoever reads from it sees its end."""

    @abstractmethod
    def last_complaint(self) -> str:
        """What was said besides events, for a message."""

    def all_complaints(self) -> str:
        """The same at length."""
        return self.last_complaint()

    def blame(self) -> tuple[str, str]:
        """Who is the cause that it is gone without a last word: a host, as a rule its own, and what was said of it."""
        return self.host, ""

    def take_left_over(self) -> bytes:
        """What was read past the last answer: the first bytes of what comes next."""
        left, self._left_over = self._left_over, b""
        return left

    def become_ready(self, ports: int, until: float) -> list[int]:
        """Carry the worker there if need be, and have free ports chosen."""
        if self.remote_dir is not None:
            self._bootstrap(self.remote_dir, until)
        self._ask(ports)
        answer = self._answer("ports", until)
        if "error" in answer:
            raise HostError(self.host, answer["error"])
        return [int(port) for port in answer["ports"]]

    def compare_clocks(self, until: float) -> None:
        """The host read its clock between our question and its answer: that much is certain."""
        asked = time.time()
        self._ask(0)
        clock, heard = self._answer("ports", until)["clock"], time.time()
        self.ahead_seconds = (clock - heard, clock - asked)

    def _ask(self, ports: int) -> None:
        self.write(json.dumps({"ports": ports}).encode() + b"\n")

    def _bootstrap(self, folder: str, until: float) -> None:
        self.write(bootstrap_line(folder, "keeper"))
        answer = self._answer("bootstrap", until)
        self.copied = answer.get("has") is False
        if self.copied:
            self.write(build_archive().data)
        if "error" not in answer:
            answer = self._answer("bootstrap", until)
        if "error" in answer:
            raise self._trouble(answer["error"])

    def _answer(self, kind: str, until: float) -> dict[str, Any]:
        """The next event of that kind; whatever else was printed before it is a login shell's greeting."""
        for _ in range(_NOISE):
            line = self._line(until)
            event = decode(line)
            if event is not None and event["kind"] == kind:
                return event
            self._noise = line.strip() or self._noise
        raise HostError(self.host, f"answers, but not as a keeper does: {self._noise}")

    def _line(self, until: float) -> str:
        while b"\n" not in self._left_over:
            left = until - time.monotonic()
            if left <= 0 or not self._wait(left):
                if time.monotonic() >= until:
                    complaint = self.last_complaint()
                    raise HostError(self.host, f"no answer in time{f': {complaint}' if complaint else ''}")
                continue
            try:
                data = os.read(self.output.fileno(), 65536)
            except ConnectionError:  # a socket whose other end lost its power
                data = b""
            if not data:
                raise self._trouble("\n".join(filter(None, (self._noise, self.all_complaints()))))
            self._left_over += data
        line, _, self._left_over = self._left_over.partition(b"\n")
        text = line.decode(errors="replace")
        return text[text.index(MARK) :] if MARK in text else text  # after a prompt without a line break

    def _wait(self, seconds: float) -> bool:
        """Whether there is output to read within this time, or less."""
        return bool(readable([self.output], seconds))

    def _trouble(self, said: str) -> HostError:
        found = explain_ssh_error(said, self.host, self.remote_dir or "its folder")
        return HostError(self.host, found.reason, remedy=found.remedy)


def readable(files: Sequence[Readable], seconds: float) -> list[Readable]:
    """Those that have something to read, or their end, within this time. Unlike select(), whatever their numbers."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    found = {number for number, _ in poll.poll(max(0.0, seconds) * 1000)}
    return [file for file in files if file.fileno() in found]


class PipeConnection(KeeperConnection):
    """Started by a command of this machine that is connected to it by pipes."""

    def __init__(self, host: str, command: list[str], remote_dir: str | None = None) -> None:
        super().__init__()
        self.host, self.remote_dir = host, remote_dir
        # A session of its own: Ctrl-C in the terminal reaches the controller alone, which then ends things in order.
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise TrainscaleError(f"cannot start {command[0]} here: {error.strerror}") from None
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.output = self._popen.stdout
        self.complaints = self._popen.stderr
        self._said, self._silent = b"", False  # on standard error, and whether that has ended

    @property
    def pid(self) -> int:
        return self._popen.pid

    def write(self, data: bytes) -> None:
        assert self._popen.stdin is not None
        try:
            while data:
                data = data[self._popen.stdin.write(data) or 0 :]
        except (BrokenPipeError, ValueError):
            pass  # it ended at once: whoever reads its output sees the end

    def last_complaint(self) -> str:
        lines = self.all_complaints().strip().splitlines()
        return lines[-1].strip() if lines else ""

    def all_complaints(self) -> str:
        while self.complaints is not None and not self._silent and readable([self.complaints], 0.2):
            self._hear_complaint()
        return self._said.decode(errors="replace")

    def _wait(self, seconds: float) -> bool:
        """Complaints are read all the while: a pipe that nobody reads would stop the command when it is full."""
        assert self.complaints is not None
        found = readable([self.output] if self._silent else [self.output, self.complaints], seconds)
        if self.complaints in found:
            self._hear_complaint()
        return self.output in found

    def _hear_complaint(self) -> None:
        assert self.complaints is not None
        piece = os.read(self.complaints.fileno(), _COMPLAINTS)
        self._silent = not piece
        self._said = (self._said + piece)[-_COMPLAINTS:]

    def close(self) -> None:
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed:
            self._popen.stdin.close()

    def cut(self) -> None:
        self._popen.kill()

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        self.close()
        try:
            return self._popen.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()  # its ranks are told by the system to die with it
            return self._popen.wait()
        finally:
            for stream in (self._popen.stdout, self._popen.stderr):
                assert stream is not None
                stream.close()


class SocketConnection(KeeperConnection):
    """One that called back. The command that started it, and maybe others with it, is not its own to end."""

    def __init__(self, host: str, connection: socket.socket | None, remote_dir: str | None = None) -> None:
        """Without a connection it has not called yet."""
        super().__init__()
        self.host, self.remote_dir = host, remote_dir
        self._connection: socket.socket | None = None
        if connection is not None:
            self._connect(connection)

    def _connect(self, connection: socket.socket) -> None:
        self._connection = self.output = connection

    def write(self, data: bytes) -> None:
        if self._connection is None:
            return
        try:
            self._connection.sendall(data)
        except OSError:
            pass  # whoever reads sees the end

    def last_complaint(self) -> str:
        return ""

    def close(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        self.close()
        if self._connection is None:
            return None
        until = time.monotonic() + patience_seconds
        try:
            while (left := until - time.monotonic()) > 0:  # also of one that goes on talking
                self._connection.settimeout(left)
                if not self._connection.recv(65536):
                    break
        except OSError:
            pass
        self._connection.close()
        return None


def ready(
    keepers: Sequence[KeeperConnection], ports: Mapping[str, int], seconds: float = READY_SECONDS
) -> dict[str, list[int]]:
    """Free ports of every host, once all keepers answer. The first HostError, in the order of the hosts, if one does
    not.
    """
    answers = try_ready(keepers, ports, seconds)
    for error in causes(answer for answer in answers.values() if isinstance(answer, HostError)):
        raise error
    return {host: answer for host, answer in answers.items() if not isinstance(answer, HostError)}


def try_ready(
    keepers: Sequence[KeeperConnection],
    ports: Mapping[str, int],
    seconds: float = READY_SECONDS,
    *,
    hurry: bool = False,
    clocks: bool = False,
) -> dict[str, list[int] | HostError]:
    """The same, with the error of each host that has one. In a ``hurry``, a host that is much later than the others is
    given up. ``clocks``: also compare clocks.
    """
    until = time.monotonic() + seconds

    def ask(keeper: KeeperConnection) -> list[int] | HostError:
        try:
            found = keeper.become_ready(ports.get(keeper.host, 0), until)
            if clocks:
                keeper.compare_clocks(until)
        except HostError as error:
            return error
        except (OSError, ValueError) as error:  # also of a file that was closed meanwhile
            return HostError(keeper.host, str(error))
        return found

    if len(keepers) == 1 and not hurry:
        return {keepers[0].host: ask(keepers[0])}
    named = {keeper.host: keeper for keeper in keepers}
    crowd = Crowd(list(named), lambda host: ask(named[host]), lambda host: named[host].cut())
    return crowd.answers((lambda host, passed: _too_late(named[host], passed)) if hurry else None)


def _too_late(keeper: KeeperConnection, seconds: float) -> HostError:
    complaint = keeper.last_complaint()
    words = f"no answer: waited {seconds:.0f} s for it{f' ({complaint})' if complaint else ''}"
    remedy = f"does it answer at once to: ssh {keeper.host} true? Set-up lines and login scripts count too"
    return HostError(keeper.host, words, remedy=remedy)


def stop_all(keepers: Sequence[KeeperConnection], patience_seconds: float = 10.0) -> None:
    """Ask all for their end first, then wait for each: 64 hosts end together."""
    for keeper in keepers:
        keeper.close()
    threads = [threading.Thread(target=keeper.stop, args=(patience_seconds,), daemon=True) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
