"""Many connections over one pair of pipes. Both ends run this code; one of them is on a host, on any Python from 3.9.

A frame is a head (the number of the connection, the kind of the frame, a length), as many bytes of data, and a newline:
Slurm passes on what a task prints when a line is complete.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable
from typing import IO

_HEAD = struct.Struct(">IBI")
OPEN, DATA, CLOSE = range(3)
_CHUNK = 65536


class Multiplexer:
    """``connect`` gives the socket for a connection that the other end begins; this end begins them by ``begin``."""

    def __init__(
        self, reader: IO[bytes], writer: IO[bytes], connect: Callable[[], socket.socket] | None = None
    ) -> None:
        self._reader, self._writer, self._connect = reader, writer, connect
        self._lock = threading.Lock()  # of the writer
        self._streams: dict[int, queue.Queue[bytes | None]] = {}
        self._count = 0

    def begin(self, connection: socket.socket) -> None:
        """Carry a connection that was accepted here to the other end."""
        self._count += 1
        self._streams[self._count] = queue.Queue()  # before the other end learns of it, and may answer
        self._send(self._count, OPEN)
        self._carry(self._count, connection)

    def run(self) -> None:
        """Carry everything until the other end closes the pipe."""
        while True:
            head = self._reader.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            number, kind, length = _HEAD.unpack(head)
            data = self._reader.read(length + 1)[:-1]
            if kind == OPEN and self._connect:
                try:
                    connection = self._connect()
                except OSError:
                    self._send(number, CLOSE)
                else:
                    self._streams[number] = queue.Queue()
                    self._carry(number, connection)
            elif number in self._streams:
                self._streams[number].put(data if kind == DATA else None)
        for stream in list(self._streams.values()):
            stream.put(None)

    def _carry(self, number: int, connection: socket.socket) -> None:
        """Copy in both directions, each in a thread of its own: a slow receiver must not stop the others."""
        sender = threading.Thread(target=self._send_all, args=(number, connection), daemon=True)
        sender.start()
        threading.Thread(target=self._receive_all, args=(number, connection, sender), daemon=True).start()

    def _send_all(self, number: int, connection: socket.socket) -> None:
        try:
            while True:
                data = connection.recv(_CHUNK)
                if not data:
                    break
                self._send(number, DATA, data)
        except OSError:
            pass  # the connection is lost, which the other end learns by CLOSE
        self._send(number, CLOSE)

    def _receive_all(self, number: int, connection: socket.socket, sender: threading.Thread) -> None:
        stream = self._streams[number]
        try:
            while True:
                data = stream.get()
                if data is None:
                    break
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
        sender.join()
        connection.close()
        self._streams.pop(number, None)

    def _send(self, number: int, kind: int, data: bytes = b"") -> None:
        with self._lock:
            try:
                self._writer.write(_HEAD.pack(number, kind, len(data)) + data + b"\n")
                self._writer.flush()
            except (OSError, ValueError):
                pass  # the pipe is closed; run() ends
