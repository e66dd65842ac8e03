"""The rendezvous of a trial's workers: barriers and small exchanges over TCP, the same for every framework.

Rank 0 runs its server. It is used around the measured window and never inside it, so that all ranks start together,
agree on step counts, and (where ranks do not wait for each other) keep the machine loaded until the last one is done.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import select
import socket
import threading
import time
from typing import Any

_CONNECT_SECONDS = 300.0


class Rendezvous:
    """Every worker calls the same methods with the same names in the same order."""

    def __init__(self, address: str, port: int, rank: int, workers: int) -> None:
        self._answers: dict[str, list[Any]] = {}
        self._buffer = b""
        self._socket: socket.socket | None = None
        self._rank = rank
        if workers > 1:
            if rank == 0:
                _Server(address, port, workers)
            self._socket = _connect(address, port)

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        """Wait for all ranks; return the value of every rank, in order of rank."""
        self.arrive(name, value)
        while name not in self._answers:
            self._read()
        return self._answers.pop(name)

    def arrive(self, name: str, value: Any = None) -> None:
        """Announce that this rank has arrived, without waiting for others."""
        if self._socket is None:
            self._answers[name] = [value]
            return
        self._socket.sendall(json.dumps([name, self._rank, value]).encode() + b"\n")

    def has_everyone_arrived(self, name: str) -> bool:
        """Whether all ranks have arrived. Does not wait."""
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
    """Collects the values of all ranks and sends them to everyone when the last one has arrived."""

    def __init__(self, address: str, port: int, workers: int) -> None:
        self._workers = workers
        self._values: dict[str, dict[int, Any]] = {}  # by name and rank
        self._connections: dict[int, socket.socket] = {}  # by rank
        self._lock = threading.Lock()
        self._socket = _listen(address, port, workers)
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def _accept(self) -> None:
        while True:  # only a rank that sends a value counts, so a stranger's connection does no harm
            connection, _address = self._socket.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    name, rank, value = json.loads(line)
                    self._collect(connection, name, rank, value)
        except (OSError, ValueError, TypeError):
            connection.close()  # of a rank that died, or of a stranger

    def _collect(self, connection: socket.socket, name: str, rank: int, value: Any) -> None:
        with self._lock:
            self._connections[rank] = connection
            values = self._values.setdefault(name, {})
            values[rank] = value
            if len(values) < self._workers:
                return
            del self._values[name]
            answer = json.dumps([name, [values[rank] for rank in range(self._workers)]]).encode() + b"\n"
            # Rank 0 comes last: when it knows that all have arrived it may end, and this thread with it.
            for number in sorted(self._connections, reverse=True):
                self._connections[number].sendall(answer)


def _listen(address: str, port: int, workers: int) -> socket.socket:
    """Listen only on the network that the ranks use.

    Where others reach this host by a name, or by an address that is translated on the way, listen on all networks.
    """
    try:
        ipaddress.IPv4Address(address)
        return socket.create_server((address, port), backlog=workers)
    except ValueError:
        pass
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
    return socket.create_server(("", port), backlog=workers)


def _connect(address: str, port: int) -> socket.socket:
    """Retry until the time is up, because rank 0 may still be starting."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=10)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            if connection.getsockname() == connection.getpeername():
                # Nobody listens yet, and the system gave this end the very port that it calls: it reached itself.
                connection.close()
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
