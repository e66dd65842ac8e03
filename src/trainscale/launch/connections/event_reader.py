"""Reads the events of many keepers as they arrive, and notices keepers that end without their last event."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...worker.events import End, Event
from .decoding import ReceivedEvent
from .exit_status import name_signal
from .keeper import KeeperConnection

POLL_SECONDS = 0.25
_DRAIN_SECONDS = 10.0


@dataclass(frozen=True)
class HostLost(Event):
    """A keeper has ended without its last event. ``culprit`` is the host that caused it, as a rule its own; it is empty
    if that cannot be known, or if somebody ended the command that had started all keepers, such as srun;
    ``stderr_tail`` is what was printed by the program that had started the keeper. A keeper that a signal told to end
    (``was_ended``) is no cause, if another is lost: mpirun ends all keepers when it loses one of them.
    """

    culprit: str
    stderr_tail: tuple[str, ...] = ()
    was_ended: bool = False


class EventReader:
    """With ``keepers_stay``, the last event of a keeper is the end of its output, which stays open."""

    def __init__(self, connections: Sequence[KeeperConnection], *, keepers_stay: bool = False) -> None:
        self._keepers_stay = keepers_stay
        self._selector = selectors.DefaultSelector()
        self._received: deque[ReceivedEvent] = deque()
        self._ended: set[str] = set()
        self._ended_by_signal: dict[str, str] = {}  # hosts whose keeper got a signal, with its name
        for connection in connections:
            for received in connection.take_pending():
                self._add(received)
            for stream in (connection.output, connection.error_output):
                if stream is not None:
                    self._selector.register(stream, selectors.EVENT_READ, connection)

    @property
    def is_open(self) -> bool:
        """Whether any keeper's output has not ended yet."""
        return bool(self._received or self._selector.get_map())

    def poll(self, seconds: float = POLL_SECONDS) -> list[ReceivedEvent]:
        """Wait until something can be read, at most this long. Return the events that arrived."""
        for key, _ in self._selector.select(0 if self._received else seconds):
            connection: KeeperConnection = key.data
            if key.fileobj is connection.output:
                received = connection.receive()
                for event in received or ():
                    self._add(event)
                has_ended = received is None
            else:
                has_ended = not connection.receive_errors()
            if has_ended:
                self._selector.unregister(key.fileobj)
                self._check_lost(connection)
            elif self._keepers_stay and connection.host in self._ended:
                self._forget(connection)
        events = list(self._received)
        self._received.clear()
        return events

    def drain(self, seconds: float = _DRAIN_SECONDS) -> Iterator[ReceivedEvent]:
        """Yield the remaining events, after the keepers were asked to end."""
        deadline = time.monotonic() + seconds
        while self.is_open and time.monotonic() < deadline:
            yield from self.poll()

    def has_ended(self, host: str) -> bool:
        """Return whether the keeper of this host has sent its last event."""
        return host in self._ended

    def _forget(self, connection: KeeperConnection) -> None:
        open_streams = self._selector.get_map()
        for stream in (connection.output, connection.error_output):
            if stream is not None and stream in open_streams:
                self._selector.unregister(stream)

    def _add(self, received: ReceivedEvent) -> None:
        if isinstance(received.event, End):
            if received.event.signal is None:
                self._ended.add(received.host)
            else:
                name = name_signal(received.event.signal)
                self._ended_by_signal[received.host] = f"it was told to end ({name})"
        self._received.append(received)

    def _check_lost(self, connection: KeeperConnection) -> None:
        """Report a keeper whose streams have both ended without its last event."""
        open_streams = self._selector.get_map()
        if connection.host in self._ended or any(
            stream is not None and stream in open_streams for stream in (connection.output, connection.error_output)
        ):
            return
        was_told_to_end = connection.host in self._ended_by_signal
        culprit, explanation = connection.explain_loss(was_told_to_end)
        stderr = connection.stderr_text() if connection.error_output is not None else ""
        text = stderr or explanation or self._ended_by_signal.get(connection.host, "")
        lost = HostLost(culprit, tuple(text.splitlines()), was_ended=was_told_to_end)
        self._received.append(ReceivedEvent(connection.host, lost))
