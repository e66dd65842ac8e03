"""Accepts the connections of keepers that call this machine back, if they know the token; closes all others.

A thread reads from all new connections side by side, so one that sends nothing delays no other.
"""

from __future__ import annotations

import hmac
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ...worker.listening import Greeting, GreetingReader, listen


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

    It listens on ``address`` alone, if that is one of this machine's, else on all networks. If ``expected`` is given,
    each host is accepted once, and nobody is accepted after that many hosts.
    """

    def __init__(
        self, token: str, identify: Callable[[Caller], str], expected: int | None = None, address: str = ""
    ) -> None:
        self._token = token.encode()
        self._identify = identify
        self._expected = expected
        self._server = listen(address)
        self.address, self.port = self._server.getsockname()[:2]
        self._waiting: dict[str, Caller] = {}
        self._accepted: set[str] = set()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._awaited: dict[str, threading.Condition] = {}  # by host: a caller wakes only the thread that waits for it
        self._is_closed = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="callback server", daemon=True)
        self._thread.start()

    def take(self, host: str, seconds: float) -> Caller | None:
        """Hand over the keeper of that host; None if it has not called within this time."""
        with self._lock:
            arrival = self._awaited.setdefault(host, threading.Condition(self._lock))
            arrival.wait_for(lambda: host in self._waiting or self._is_closed, max(0.0, seconds))
            self._awaited.pop(host, None)
            return self._waiting.pop(host, None)

    def wait_for_callers(self, count: int, seconds: float) -> list[Caller]:
        """Return those who wait, once there are ``count`` or this time has passed. They go on waiting."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= count or self._is_closed, max(0.0, seconds))
            return list(self._waiting.values())

    def close(self) -> None:
        """Stop listening, and close the connections that nobody took."""
        with self._changed:
            self._is_closed = True
            for condition in (self._changed, *self._awaited.values()):
                condition.notify_all()
        self._wake.close()
        self._thread.join()
        for caller in self._waiting.values():
            caller.connection.close()

    def _serve(self) -> None:
        """Run the thread: until close(), or until all expected hosts were accepted."""
        reader = GreetingReader(self._server)
        reader.wake_by(self._woken)
        while not self._is_closed and not self._is_complete:
            greeting = reader.wait_for_greeting()
            if greeting is not None and not self._admit(greeting):
                greeting.connection.close()
        reader.close()
        self._woken.close()

    @property
    def _is_complete(self) -> bool:
        return self._expected is not None and len(self._accepted) >= self._expected

    def _admit(self, greeting: Greeting) -> bool:
        connection = greeting.connection
        try:
            token, index, hostname, *details = greeting.received.split()
            if not hmac.compare_digest(token, self._token):
                return False
            caller = Caller(
                int(index),
                hostname.decode(),
                tuple(detail.decode() for detail in details),
                connection.getpeername()[0],
                connection.getsockname()[0],
                connection,
            )
            host = self._identify(caller)
            connection.setblocking(True)
            _detect_lost_peer(connection)
        except (OSError, ValueError, LookupError):
            return False
        with self._changed:
            if host in self._waiting or (host in self._accepted and self._expected is not None) or self._is_closed:
                return False
            self._waiting[host] = caller
            self._accepted.add(host)
            self._changed.notify_all()
            if host in self._awaited:
                self._awaited[host].notify_all()
        return True


def _detect_lost_peer(connection: socket.socket) -> None:
    """Have the system find out within seconds that the other machine lost its power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
