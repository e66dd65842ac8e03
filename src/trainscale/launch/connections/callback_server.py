"""Lets keepers in that call this machine: those that know the token, each host once; strangers are sent away.

Callers are greeted side by side, in a thread: one that connects and then says nothing keeps nobody else waiting.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

_GREETING = 1024  # bytes that a caller may say before it is let in
_GREETING_SECONDS = 10.0
_AT_THE_DOOR = 512  # callers that have not said who they are; of more, the oldest is sent away
_BACKLOG = 1024


@dataclass(frozen=True)
class Caller:
    """What a keeper said of itself: its number among those that one command started, its host's name, and whatever
    else its launcher wants to know.
    """

    index: int
    hostname: str
    more: tuple[str, ...]
    address: str  # from which it calls
    called: str  # address of ours which it reached
    connection: socket.socket


class CallbackServer:
    """Open until ``close``. ``identify`` says which host a caller is, or raises a LookupError or ValueError for one
    that is none of ours. With ``expected``, a host that called is not let in again, and nobody is once all have.
    """

    def __init__(
        self, token: str, identify: Callable[[Caller], str], expected: int | None = None, address: str = ""
    ) -> None:
        self._token = token.encode()
        self._identify = identify
        self._expected = expected
        self._server = socket.create_server(
            ("", 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=_BACKLOG
        )
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._waiting: dict[str, Caller] = {}
        self._seen: set[str] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._receive, name="reception", daemon=True)
        self._thread.start()

    def take(self, host: str, seconds: float) -> Caller | None:
        """The keeper of that host, from now on the taker's; None if it has not called in this time."""
        with self._changed:
            self._changed.wait_for(lambda: host in self._waiting or self._closed, max(0.0, seconds))
            return self._waiting.pop(host, None)

    def callers(self, count: int, seconds: float) -> list[Caller]:
        """Those who wait, once there are so many, or those there are after this time. They go on waiting."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= count or self._closed, max(0.0, seconds))
            return list(self._waiting.values())

    def close(self) -> None:
        """Those who still wait see their connection end, and go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._wake.close()
        self._thread.join()
        for caller in self._waiting.values():
            caller.connection.close()

    def _receive(self) -> None:
        """Everything that a socket wants, until close(), or until all who are expected came."""
        with selectors.DefaultSelector() as selector, self._woken, self._server:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._server, selectors.EVENT_READ)
            door: dict[socket.socket, _Stranger] = {}
            while not self._closed and not self._complete:
                for key, _ in selector.select(1.0 if door else None):
                    if key.fileobj is self._server:
                        self._accept(selector, door)
                    elif key.fileobj is not self._woken:
                        self._hear(selector, door, door[key.fileobj])  # type: ignore[index]
                late = [one for one in door.values() if time.monotonic() > one.until]
                for one in late + list(door.values())[: max(0, len(door) - _AT_THE_DOOR)]:
                    _send_away(selector, door, one)
            for one in list(door.values()):
                _send_away(selector, door, one)

    @property
    def _complete(self) -> bool:
        return self._expected is not None and len(self._seen) >= self._expected

    def _accept(self, selector: selectors.BaseSelector, door: dict[socket.socket, _Stranger]) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            time.sleep(0.01)  # it left again, or there are no file descriptors; those at the door free theirs
            return
        connection.setblocking(False)
        door[connection] = _Stranger(connection, time.monotonic() + _GREETING_SECONDS)
        selector.register(connection, selectors.EVENT_READ)

    def _hear(self, selector: selectors.BaseSelector, door: dict[socket.socket, _Stranger], one: _Stranger) -> None:
        try:
            one.said += (piece := one.connection.recv(_GREETING))
        except OSError:
            piece = b""
        if one.said.endswith(b"\n") and self._admit(one):
            selector.unregister(one.connection)
            del door[one.connection]
        elif not piece or b"\n" in one.said or len(one.said) > _GREETING:
            _send_away(selector, door, one)

    def _admit(self, one: _Stranger) -> bool:
        try:
            token, index, hostname, *more = one.said.split()
            if not secrets.compare_digest(token, self._token):
                return False
            called, caller = one.connection.getsockname()[0], one.connection.getpeername()[0]
            found = Caller(
                int(index), hostname.decode(), tuple(word.decode() for word in more), caller, called, one.connection
            )
            host = self._identify(found)
            one.connection.setblocking(True)
            notice_death(one.connection)
        except (OSError, ValueError, LookupError):
            return False
        with self._changed:
            if host in self._waiting or (host in self._seen and self._expected is not None) or self._closed:
                return False
            self._waiting[host] = found
            self._seen.add(host)
            self._changed.notify_all()
        return True


@dataclass
class _Stranger:
    """One that connected and has not said who it is."""

    connection: socket.socket
    until: float
    said: bytes = b""


def _send_away(selector: selectors.BaseSelector, door: dict[socket.socket, _Stranger], one: _Stranger) -> None:
    if door.pop(one.connection, None) is not None:
        selector.unregister(one.connection)
        one.connection.close()


def notice_death(connection: socket.socket) -> None:
    """A machine that loses its power says nothing: ask the system to find out within seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    set_option = partial(connection.setsockopt, socket.IPPROTO_TCP)
    set_option(socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, name):
            set_option(getattr(socket, name), value)
