"""Accepts the connections of keepers that call this machine back, if they know the token; closes all others.

A thread reads from all new connections side by side, so one that sends nothing delays no other.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_HELLO_BYTES = 1024  # the longest line with which a caller may identify itself
_HELLO_SECONDS = 10.0
_MOST_UNIDENTIFIED = 512  # connections that have not identified themselves; if there are more, the oldest is closed
_BACKLOG = 1024


@dataclass(frozen=True)
class Caller:
    """What a keeper said about itself. ``index`` is its number among those that one command started."""

    index: int
    hostname: str
    details: tuple[str, ...]  # whatever else its launcher needs to know
    address: str  # the address it calls from
    called: str  # the address of this machine that it called
    connection: socket.socket


class CallbackServer:
    """Listens until ``close``. ``identify`` returns which host a caller is; a LookupError or ValueError refuses it.

    If ``expected`` is given, each host is accepted once, and nobody is accepted after that many hosts.
    """

    def __init__(
        self, token: str, identify: Callable[[Caller], str], expected: int | None = None, address: str = ""
    ) -> None:
        self._token = token.encode()
        self._identify = identify
        self._expected = expected
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, backlog=_BACKLOG)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._waiting: dict[str, Caller] = {}
        self._accepted: set[str] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._unidentified: dict[socket.socket, _NewConnection] = {}
        self._thread = threading.Thread(target=self._serve, name="callback server", daemon=True)
        self._thread.start()

    def take(self, host: str, seconds: float) -> Caller | None:
        """Hand over the keeper of that host; None if it has not called within this time."""
        with self._changed:
            self._changed.wait_for(lambda: host in self._waiting or self._is_closed, max(0.0, seconds))
            return self._waiting.pop(host, None)

    def callers(self, count: int, seconds: float) -> list[Caller]:
        """Return those who wait, once there are ``count`` or this time has passed. They go on waiting."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= count or self._is_closed, max(0.0, seconds))
            return list(self._waiting.values())

    def close(self) -> None:
        """Stop listening, and close the connections that nobody took."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake.close()
        self._thread.join()
        for caller in self._waiting.values():
            caller.connection.close()

    def _serve(self) -> None:
        """Run the thread: until close(), or until all expected hosts were accepted."""
        with self._selector as selector, self._woken, self._server:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._server, selectors.EVENT_READ)
            unidentified = self._unidentified
            while not self._is_closed and not self._is_complete:
                for key, _ in selector.select(1.0 if unidentified else None):
                    if key.fileobj is self._server:
                        self._accept()
                    elif key.fileobj is not self._woken:
                        self._read(unidentified[key.fileobj])  # type: ignore[index]
                late = [new for new in unidentified.values() if time.monotonic() > new.deadline]
                for new in late + list(unidentified.values())[: max(0, len(unidentified) - _MOST_UNIDENTIFIED)]:
                    self._refuse(new)
            for new in list(unidentified.values()):
                self._refuse(new)

    @property
    def _is_complete(self) -> bool:
        return self._expected is not None and len(self._accepted) >= self._expected

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            time.sleep(0.01)  # it is gone again, or there are no file descriptors: refused connections free theirs
            return
        connection.setblocking(False)
        self._unidentified[connection] = _NewConnection(connection, time.monotonic() + _HELLO_SECONDS)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, new: _NewConnection) -> None:
        try:
            new.received += (piece := new.connection.recv(_HELLO_BYTES))
        except OSError:
            piece = b""
        if new.received.endswith(b"\n") and self._admit(new):
            self._selector.unregister(new.connection)
            del self._unidentified[new.connection]
        elif not piece or b"\n" in new.received or len(new.received) > _HELLO_BYTES:
            self._refuse(new)

    def _admit(self, new: _NewConnection) -> bool:
        try:
            token, index, hostname, *details = new.received.split()
            if not secrets.compare_digest(token, self._token):
                return False
            caller = Caller(
                int(index),
                hostname.decode(),
                tuple(detail.decode() for detail in details),
                new.connection.getpeername()[0],
                new.connection.getsockname()[0],
                new.connection,
            )
            host = self._identify(caller)
            new.connection.setblocking(True)
            _detect_lost_peer(new.connection)
        except (OSError, ValueError, LookupError):
            return False
        with self._changed:
            if host in self._waiting or (host in self._accepted and self._expected is not None) or self._is_closed:
                return False
            self._waiting[host] = caller
            self._accepted.add(host)
            self._changed.notify_all()
        return True

    def _refuse(self, new: _NewConnection) -> None:
        if self._unidentified.pop(new.connection, None) is not None:
            self._selector.unregister(new.connection)
            new.connection.close()


@dataclass
class _NewConnection:
    """A connection that has not identified itself yet."""

    connection: socket.socket
    deadline: float
    received: bytes = b""


def _detect_lost_peer(connection: socket.socket) -> None:
    """Have the system find out within seconds that the other machine lost its power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
