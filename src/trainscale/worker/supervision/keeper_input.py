"""Standard input of a keeper: the requests of the controller, and its signs of life, which are empty lines."""

from __future__ import annotations

import os
import select
import time
from collections import deque

from .requests import KeeperRequest, decode_request


class KeeperInput:
    """Reads without a buffer of the interpreter, because standard input must stay readable for its end."""

    def __init__(self) -> None:
        self.has_ended = False  # the controller is done or dead
        self._incomplete: list[bytes] = []  # pieces of a line
        self._lines: deque[bytes] = deque()
        self._last_read = time.monotonic()

    def wait(self, silence_seconds: float | None = None) -> None:
        """Wait for something to read, and read it. A controller that is silent for too long counts as dead."""
        if silence_seconds is not None and not select.select([0], [], [], silence_seconds)[0]:
            self.has_ended = True
        else:
            self.read()

    def read(self) -> None:
        """Read what is there, or wait for it."""
        try:
            data = os.read(0, 65536)
        except OSError:  # a connection whose other end lost its power
            data = b""
        self.has_ended = self.has_ended or not data
        self._last_read = time.monotonic()
        first, *others = data.split(b"\n")
        self._incomplete.append(first)
        for piece in others:
            self._lines.append(b"".join(self._incomplete))
            self._incomplete = [piece]

    def take_request(self) -> KeeperRequest | None:
        """Return the next request that has arrived, or None."""
        while self._lines:
            line = self._lines.popleft()
            if line:
                return decode_request(line)
        return None

    @property
    def silent_seconds(self) -> float:
        """For how long nothing was read."""
        return time.monotonic() - self._last_read
