"""The connection to a keeper that called back over a socket."""

from __future__ import annotations

import socket
import time

from .keeper import KeeperConnection


class SocketConnection(KeeperConnection):
    """A keeper that called back. The command that started it may have started others, so this does not end it."""

    def __init__(self, host: str, connection: socket.socket | None, remote_dir: str | None = None) -> None:
        """Without a connection, the keeper has not called yet."""
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
            pass  # reading shows the end

    def last_stderr_line(self) -> str:
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
        deadline = time.monotonic() + patience_seconds
        try:
            while (seconds := deadline - time.monotonic()) > 0:  # it may go on sending
                self._connection.settimeout(seconds)
                if not self._connection.recv(65536):
                    break
        except OSError:
            pass
        self._connection.close()
        return None
