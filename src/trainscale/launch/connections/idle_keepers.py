"""Keepers that wait for their next tasks. So one login on a host serves its inspection and all trials of a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .keeper import KeeperConnection, stop_all

_KEEP_ALIVE_SECONDS = 5.0


class IdleKeepers:
    """At most one connection for each host. A thread sends them signs of life, without which they end."""

    def __init__(self) -> None:
        self._connections: dict[str, KeeperConnection] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, host: str) -> KeeperConnection | None:
        """Return the connection to this host, which from now on is the caller's, or None."""
        with self._lock:
            return self._connections.pop(host, None)

    def add(self, connections: Sequence[KeeperConnection]) -> None:
        """Keep connections whose keepers have ended their tasks."""
        with self._lock:
            unwanted = [connection for connection in connections if connection.host in self._connections]
            self._connections.update({c.host: c for c in connections if c not in unwanted})
            for connection in self._connections.values():
                connection.is_idle = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_alive, name="idle keepers", daemon=True)
                self._thread.start()
        stop_all(unwanted)

    def close(self) -> None:
        """End all of them."""
        self._closed.set()
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        stop_all(connections)

    def _keep_alive(self) -> None:
        while not self._closed.wait(_KEEP_ALIVE_SECONDS):
            with self._lock:
                for connection in self._connections.values():
                    connection.write(b"\n")
