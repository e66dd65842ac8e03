"""The rendezvous of a trial's workers: barriers and small exchanges over TCP.

It is used around the measured window and never inside it, so that all ranks start together,
agree on step counts, and keep the machine loaded until the last is done.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from ..listening import GreetingReader, listen

_CONNECT_SECONDS = 300.0
_RETRY_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
_WELCOME = b"welcome\n"


class Rendezvous:
    """Every worker calls the same methods with the same names in the same order. Rank 0, which has
    the server, admits no process without the secret of the trial.
    """

    def __init__(self, address: str, port: int, rank: int, workers: int, secret: str = "") -> None:
        self._answers: dict[str, list[Any]] = {}
        self._buffer = b""
        self._socket: socket.socket | None = None
        if workers > 1:
            if rank == 0:
                _Server(address, port, workers, secret)
            self._socket = _connect(address, port, f"{secret} {rank}\n".encode())

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        """Wait for all ranks; return the values in order of rank."""
        self.arrive(name, value)
        while name not in self._answers:
            self._read()
        return self._answers.pop(name)

    def arrive(self, name: str, value: Any = None) -> None:
        """Announce that this rank has arrived, without waiting."""
        if self._socket is None:
            self._answers[name] = [value]
            return
        self._socket.sendall(json.dumps([name, value]).encode() + b"\n")

    def has_everyone_arrived(self, name: str) -> bool:
        while self._socket is not None and name not in self._answers:
            if not select.select([self._socket], [], [], 0)[0]:
                return False
            self._read()
        return name in self._answers

    def _read(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("rank 0 left the rendezvous: it ended early, see its log")
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            name, values = json.loads(line)
            self._answers[name] = values


class _Server:
    """Sends the values of all ranks to everyone when the last one has arrived."""

    def __init__(self, address: str, port: int, workers: int, secret: str) -> None:
        self._workers, self._secret = workers, secret.encode()
        self._values: dict[str, dict[int, Any]] = {}  # by name and rank
        self._connections: dict[int, socket.socket] = {}  # by rank
        self._lock = threading.Lock()
        self._socket = listen(address, port)
        threading.Thread(target=self._admit_all, name="rendezvous", daemon=True).start()

    def _admit_all(self) -> None:
        reader = GreetingReader(self._socket)
        while len(self._connections) < self._workers:
            greeting = reader.wait_for_greeting()
            if greeting is None:
                continue
            connection = greeting.connection
            secret, _, number = greeting.received.partition(b" ")
            rank = int(number) if number.strip().isdigit() else self._workers
            is_known = hmac.compare_digest(secret, self._secret) and rank < self._workers
            try:
                if not is_known or rank in self._connections:
                    raise ConnectionError("no rank of the trial, or it is here already")
                connection.setblocking(True)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(_WELCOME)
            except OSError:
                connection.close()
                continue
            with self._lock:
                self._connections[rank] = connection
            threading.Thread(target=self._serve, args=(connection, rank), daemon=True).start()
        reader.close()

    def _serve(self, connection: socket.socket, rank: int) -> None:
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    name, value = json.loads(line)
                    with self._lock:
                        values = self._values.setdefault(name, {})
                        values[rank] = value
                        if len(values) < self._workers:
                            continue
                        del self._values[name]
                        ordered = [values[rank] for rank in range(self._workers)]
                        answer = json.dumps([name, ordered]).encode() + b"\n"
                        # Rank 0 comes last: when it knows that all have arrived it may end,
                        # and this thread with it.
                        for number in sorted(self._connections, reverse=True):
                            self._connections[number].sendall(answer)
        except (OSError, ValueError, TypeError):
            connection.close()  # of a rank that died


def _connect(address: str, port: int, greeting: bytes) -> socket.socket:
    """Return a connection on which rank 0 has welcomed this rank. Retry until the time is up:
    rank 0 may still be starting, and may have many other callers.
    """
    deadline, reason = time.monotonic() + _CONNECT_SECONDS, ""
    while time.monotonic() < deadline:
        try:
            connection = socket.create_connection((address, port), timeout=_ANSWER_SECONDS)
        except OSError as error:
            reason = f": {error}"
        else:
            with suppress(OSError):
                # If no process listens yet, this end may be given the very port that it calls.
                if connection.getsockname() != connection.getpeername():
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.sendall(greeting)
                    with connection.makefile("rb", 0) as answers:
                        if answers.readline(len(_WELCOME)) == _WELCOME:
                            connection.settimeout(None)
                            return connection
            connection.close()
        time.sleep(_RETRY_SECONDS)
    raise ConnectionError(f"rank 0 did not admit this rank within {_CONNECT_SECONDS:.0f} s{reason}")
