"""Listening sockets that unknown clients cannot disturb: they are bound to one address where
that is known, and every client must first send a greeting with a secret.
"""

from __future__ import annotations

import errno
import ipaddress
import random
import selectors
import socket
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass

_GREETING_BYTES = 1024  # the longest line with which a caller may identify itself
_GREETING_SECONDS = 10.0
_MOST_STRANGERS = 512  # callers that have not identified themselves
_TURN_SECONDS = 1.0
_PAUSE_SECONDS = 0.01
_BACKLOG = 8192  # callers at once: all ranks, and strangers
_FIRST_PORT = 10000  # well-known services have the ports below
_PORTS_TO_TRY = 500
_SYSTEM_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def listen(address: str, port: int = 0) -> socket.socket:
    """Listen on one address, or on all if it is not this host's: it is translated on the way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    own_address = _find_own_address(address)
    try:
        return socket.create_server((own_address, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL or not own_address:
            raise
    return socket.create_server(("", port), family=family, backlog=_BACKLOG)


def _find_own_address(address: str) -> str:
    """Return the address of a name; empty for several, or a loopback one: many hosts' own name."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        answers = socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM) if address else []
    except (OSError, UnicodeError):
        return ""
    resolved = {str(answer[4][0]) for answer in answers}
    is_clear = len(resolved) == 1 and not any(ipaddress.ip_address(own).is_loopback for own in resolved)
    return resolved.pop() if is_clear else ""


@dataclass
class Greeting:
    connection: socket.socket  # which does not block
    deadline: float
    received: bytes = b""


class GreetingReader:
    """Reads the greetings of all callers side by side, so one that sends nothing delays no other.

    Callers that send no line in time, or more than one, are closed, and the oldest of very many.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._strangers: dict[socket.socket, Greeting] = {}  # in the order of their deadlines
        self._complete: deque[Greeting] = deque()
        self._selector = selectors.DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def wait_for_greeting(self, seconds: float | None = None) -> Greeting | None:
        """Return the next greeting, whose connection is the caller's from then on, or None."""
        if self._complete:
            return self._complete.popleft()
        if self._strangers:
            seconds = _TURN_SECONDS if seconds is None else min(seconds, _TURN_SECONDS)
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._server:
                self._accept()
            elif key.fileobj in self._strangers:
                self._read(self._strangers[key.fileobj])
        now, too_many = time.monotonic(), len(self._strangers) - _MOST_STRANGERS
        for number, greeting in enumerate(list(self._strangers.values())):
            if number >= too_many and greeting.deadline > now:
                break
            self._refuse(greeting)
        return self._complete.popleft() if self._complete else None

    def close(self) -> None:
        for connection in (*self._strangers, *(greeting.connection for greeting in self._complete)):
            connection.close()
        self._selector.close()
        self._server.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            time.sleep(_PAUSE_SECONDS)  # it is gone again, or there are no descriptors
            return
        connection.setblocking(False)
        self._strangers[connection] = Greeting(connection, time.monotonic() + _GREETING_SECONDS)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, greeting: Greeting) -> None:
        try:
            piece = greeting.connection.recv(_GREETING_BYTES - len(greeting.received))
        except OSError:
            piece = b""
        greeting.received += piece
        if greeting.received.find(b"\n") == len(greeting.received) - 1 >= 0:
            self._forget(greeting)
            self._complete.append(greeting)
        elif not piece or b"\n" in greeting.received or len(greeting.received) >= _GREETING_BYTES:
            self._refuse(greeting)

    def _refuse(self, greeting: Greeting) -> None:
        self._forget(greeting)
        greeting.connection.close()

    def _forget(self, greeting: Greeting) -> None:
        del self._strangers[greeting.connection]
        self._selector.unregister(greeting.connection)


def find_free_ports(count: int) -> list[int]:
    """Return different ports on which no process of this host listens now. Raises OSError.

    They are not among those of outgoing connections: a peer that connects before anybody
    listens might get that very port for its own end.
    """
    try:
        with open(_SYSTEM_RANGE) as file:
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999  # the default of Linux
    candidates = max(range(_FIRST_PORT, low), range(high + 1, 65536), key=len)
    if len(candidates) < _PORTS_TO_TRY:
        candidates = range(_FIRST_PORT, 65536)
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(candidates, k=_PORTS_TO_TRY):
            if len(ports) == count:
                break
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("", port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports: {_PORTS_TO_TRY} were tried")
    return ports
