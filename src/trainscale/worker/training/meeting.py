"""Where the workers of a trial meet: barriers and small exchanges over TCP, the same for every framework.

Rank 0 holds the meeting. It is used around the measured window, never inside it, so that all ranks start together,
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


class Meeting:
    """Every worker calls the same methods with the same names in the same order."""

    def __init__(self, address: str, port: int, rank: int, workers: int) -> None:
        self._workers = workers
        self._answers: dict[str, list[Any]] = {}
        self._buffer = b""
        self._socket: socket.socket | None = None
        self._rank = rank
        if workers > 1:
            if rank == 0:
                _Host(address, port, workers)
            self._socket = _connect(address, port)

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        """Wait for everybody; returns the value of every rank, in order of rank."""
        self.arrive(name, value)
        while not self._here(name):
            self._read()
        return self._answers.pop(name)

    def arrive(self, name: str, value: Any = None) -> None:
        """Say that this rank is here, and go on."""
        if self._socket is None:
            self._answers[name] = [value]
            return
        self._socket.sendall(json.dumps([name, self._rank, value]).encode() + b"\n")

    def everybody_here(self, name: str) -> bool:
        """Whether all have arrived. Does not wait."""
        while self._socket is not None and not self._here(name):
            if not select.select([self._socket], [], [], 0)[0]:
                return False
            self._read()
        return self._here(name)

    def _here(self, name: str) -> bool:
        return name in self._answers

    def _read(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("rank 0 left the meeting: it ended early, see its log")
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            name, values = json.loads(line)
            self._answers[name] = values


class _Host:
    """Collects what the ranks say, and tells all of them when the last one has spoken."""

    def __init__(self, address: str, port: int, workers: int) -> None:
        self._workers = workers
        self._said: dict[str, dict[int, Any]] = {}
        self._peers: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._server = _listener(address, port, workers)
        threading.Thread(target=self._accept, name="meeting", daemon=True).start()

    def _accept(self) -> None:
        while True:  # whoever connects: only a rank that speaks counts, so a stranger takes nobody's place
            peer, _address = self._server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()

    def _listen(self, peer: socket.socket) -> None:
        try:
            with peer.makefile("rb") as lines:
                for line in lines:
                    name, rank, value = json.loads(line)
                    self._note(peer, name, rank, value)
        except (OSError, ValueError, TypeError):
            peer.close()  # a rank that died, or a stranger

    def _note(self, peer: socket.socket, name: str, rank: int, value: Any) -> None:
        with self._lock:
            self._peers[rank] = peer
            said = self._said.setdefault(name, {})
            said[rank] = value
            if len(said) < self._workers:
                return
            del self._said[name]
            answer = json.dumps([name, [said[r] for r in range(self._workers)]]).encode() + b"\n"
            # Rank 0 last: it may end, and this thread with it, as soon as it knows that all are here.
            for number in sorted(self._peers, reverse=True):
                self._peers[number].sendall(answer)


def _listener(address: str, port: int, workers: int) -> socket.socket:
    """On the network that the ranks use, and on no other. Where others call this host by what is not an address of its
    own (a name, an address that is translated on the way), on all.
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
    """Rank 0 may still be starting: keep trying."""
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
                # Nobody listens yet, and the system gave this end the very port it was calling: a call to itself.
                connection.close()
                continue
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
