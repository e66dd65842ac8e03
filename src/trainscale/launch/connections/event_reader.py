"""Reads what all keepers of a trial or a launch say, as it comes, and notices those that go without a last word."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...worker.events import decode
from .keeper import KeeperConnection

_POLL_SECONDS = 0.25
_COMPLAINTS = 4096  # bytes of a keeper's standard error that are kept


class EventReader:
    """``hear`` gets every event. ``lose`` gets the name of a host whose keeper is gone, and what was said last by
    whatever had started it.
    """

    def __init__(
        self,
        keepers: Sequence[KeeperConnection],
        hear: Callable[[dict[str, Any]], None],
        lose: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        self._hear = hear
        self._lose = lose
        self._selector = selectors.DefaultSelector()
        self._buffers = {keeper.host: b"" for keeper in keepers}
        self._complaints = {keeper.host: b"" for keeper in keepers}
        self._ended: set[str] = set()
        self._told: dict[str, str] = {}  # those that ended because somebody else than the controller wanted it
        for keeper in keepers:
            self._take(keeper.host, keeper.take_left_over())
            for stream in (keeper.output, keeper.complaints):
                if stream is not None:
                    self._selector.register(stream, selectors.EVENT_READ, keeper)

    @property
    def open(self) -> bool:
        return bool(self._selector.get_map())

    def hear(self, seconds: float = _POLL_SECONDS) -> None:
        """Whatever comes within this time."""
        for key, _ in self._selector.select(seconds):
            keeper: KeeperConnection = key.data
            try:
                data = os.read(key.fd, 65536)
            except OSError:  # a connection whose other end lost its power
                data = b""
            if not data:
                self._selector.unregister(key.fileobj)
                self._closed(keeper)
            elif key.fileobj is keeper.output:
                self._take(keeper.host, data)
            else:
                self._complaints[keeper.host] = (self._complaints[keeper.host] + data)[-_COMPLAINTS:]

    def _closed(self, keeper: KeeperConnection) -> None:
        """A keeper whose streams have both ended without its last word is lost."""
        left = {key.fileobj for key in self._selector.get_map().values()}
        if keeper.host not in self._ended and not left & {keeper.output, keeper.complaints}:
            host, said = keeper.blame()
            words = self._complaints[keeper.host].decode(errors="replace") or said or self._told.get(keeper.host, "")
            self._lose(host, tuple(words.splitlines()))

    def last_words(self, seconds: float = 10.0) -> None:
        """After the keepers' inputs were closed: until each has said its end."""
        until = time.monotonic() + seconds
        while self.open and time.monotonic() < until:
            self.hear()

    def _take(self, host: str, data: bytes) -> None:
        *lines, self._buffers[host] = (self._buffers[host] + data).split(b"\n")
        for line in lines:
            event = decode(line.decode(errors="replace"))
            if event is None:
                continue
            if event["kind"] == "end" and "signal" in event:
                self._told[host] = f"it was told to end ({signal.Signals(event['signal']).name})"
            elif event["kind"] == "end":
                self._ended.add(host)
            self._hear(event)
