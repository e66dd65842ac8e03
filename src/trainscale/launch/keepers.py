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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ..errors import TrainscaleError
from ..worker.events import MARK, decode
from .archive import archive, first_line

READY_SECONDS = 120.0  # for ssh to connect, a file system to wake up, the worker to be copied over a slow line
_AT_ONCE = 64
_COMPLAINTS = 4096  # bytes of what a command printed that are kept
_NOISE = 200  # lines that a login shell may print before the keeper speaks


class HostError(TrainscaleError):
    """A host cannot be used. ``host`` is its name; the message says why."""

    exit_code = 1

    def __init__(self, host: str, message: str) -> None:
        super().__init__(f"{host}: {message}")
        self.host = host


class Readable(Protocol):
    def fileno(self) -> int: ...


class Keeper(ABC):
    """Closing its input ends it and all that it started."""

    host: str
    output: Readable  # events
    complaints: Readable | None = None  # of the keeper itself, or of what was to start it
    remote_dir: str | None = None  # set where the worker has to be carried to the host first

    def __init__(self) -> None:
        self._left_over = b""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Ask for the end; the keeper's last words can still be read from ``output``."""

    @abstractmethod
    def stop(self, patience_seconds: float = 10.0) -> int | None:
        """End it and wait for it. Returns an exit code where there is one."""

    @abstractmethod
    def last_complaint(self) -> str:
        """What was said besides events, for a message."""

    def take_left_over(self) -> bytes:
        """What was read past the last answer: the first bytes of what comes next."""
        left, self._left_over = self._left_over, b""
        return left

    def become_ready(self, ports: int, until: float) -> list[int]:
        """Carry the worker there if need be, and have free ports chosen."""
        if self.remote_dir is not None:
            self._bootstrap(self.remote_dir, until)
        self.write(json.dumps({"ports": ports}).encode() + b"\n")
        answer = self._answer("ports", until)
        if "error" in answer:
            raise HostError(self.host, answer["error"])
        return [int(port) for port in answer["ports"]]

    def _bootstrap(self, folder: str, until: float) -> None:
        self.write(first_line(folder, "keeper"))
        answer = self._answer("bootstrap", until)
        if answer.get("has") is False:
            self.write(archive().data)
        if "error" not in answer:
            answer = self._answer("bootstrap", until)
        if "error" in answer:
            raise HostError(self.host, answer["error"])

    def _answer(self, kind: str, until: float) -> dict[str, Any]:
        """The next event of that kind; whatever else was printed before it is a login shell's greeting."""
        for _ in range(_NOISE):
            event = decode(self._line(until))
            if event is not None and event["kind"] == kind:
                return event
        raise HostError(self.host, f"answers, but not as a keeper does: {self.last_complaint()}")

    def _line(self, until: float) -> str:
        while b"\n" not in self._left_over:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                raise HostError(self.host, f"no answer in time{_after_colon(self.last_complaint())}")
            data = os.read(self.output.fileno(), 65536)
            if not data:
                raise HostError(self.host, self.last_complaint() or "the connection ended without a word")
            self._left_over += data
        line, _, self._left_over = self._left_over.partition(b"\n")
        text = line.decode(errors="replace")
        return text[text.index(MARK) :] if MARK in text else text  # after a prompt without a line break


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""


class PipeKeeper(Keeper):
    """Started by a command of this machine that is connected to it by pipes."""

    def __init__(self, host: str, command: list[str], remote_dir: str | None = None) -> None:
        super().__init__()
        self.host, self.remote_dir = host, remote_dir
        # A session of its own: Ctrl-C in the terminal reaches the controller alone, which then ends things in order.
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.output = self._popen.stdout
        self.complaints = self._popen.stderr

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
        assert self._popen.stderr is not None
        said = b""
        while select.select([self._popen.stderr], [], [], 0.2)[0]:
            piece = os.read(self._popen.stderr.fileno(), _COMPLAINTS)
            if not piece:
                break
            said = (said + piece)[-_COMPLAINTS:]
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed:
            self._popen.stdin.close()

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


class SocketKeeper(Keeper):
    """One that called back. The command that started it, and maybe others with it, is not its own to end."""

    def __init__(self, host: str, connection: socket.socket, remote_dir: str | None = None) -> None:
        super().__init__()
        self.host, self.remote_dir = host, remote_dir
        self._connection = connection
        self.output = connection

    def write(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            pass  # whoever reads sees the end

    def last_complaint(self) -> str:
        return ""

    def close(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        self.close()
        self._connection.settimeout(patience_seconds)
        try:
            while self._connection.recv(65536):
                pass
        except OSError:
            pass
        self._connection.close()
        return None


def ready(keepers: Sequence[Keeper], ports: dict[str, int], seconds: float = READY_SECONDS) -> dict[str, list[int]]:
    """Free ports of every host, once all keepers answer. The first HostError, in the order of the hosts, if one does
    not.
    """
    answers = try_ready(keepers, ports, seconds)
    for answer in answers.values():
        if isinstance(answer, HostError):
            raise answer
    return {host: answer for host, answer in answers.items() if not isinstance(answer, HostError)}


def try_ready(
    keepers: Sequence[Keeper], ports: dict[str, int], seconds: float = READY_SECONDS
) -> dict[str, list[int] | HostError]:
    """The same, with the error of each host that has one."""
    until = time.monotonic() + seconds

    def ask(keeper: Keeper) -> list[int] | HostError:
        try:
            return keeper.become_ready(ports.get(keeper.host, 0), until)
        except HostError as error:
            return error
        except OSError as error:
            return HostError(keeper.host, str(error))

    if len(keepers) == 1:
        return {keepers[0].host: ask(keepers[0])}
    with ThreadPoolExecutor(min(_AT_ONCE, len(keepers)), thread_name_prefix="keepers") as pool:
        return dict(zip((keeper.host for keeper in keepers), pool.map(ask, keepers), strict=True))


def stop_all(keepers: Sequence[Keeper]) -> None:
    """Ask all for their end first, then wait for each: 64 hosts end together."""
    for keeper in keepers:
        keeper.close()
    threads = [threading.Thread(target=keeper.stop, daemon=True) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
