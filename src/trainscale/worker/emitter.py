"""Sends events: encodes them as lines, numbers a rank's events, and sends its heartbeats."""

from __future__ import annotations

import json
import os
import sys
import threading

from .events import LIMIT, MARK, Event, Heartbeat, Steps

STEPS_PER_LINE = 200  # 200 numbers of at most 12 characters stay far below the limit
_HEARTBEAT_SECONDS = 1.0
_SHORTEST_TEXT = 16  # characters: a shorter text is not cut


def encode(event: Event, rank: int | None = None, sequence: int | None = None) -> bytes:
    """Return the event as a line. A text that is too long loses its beginning, because errors are explained last."""
    values: dict[str, object] = {"kind": event.kind}
    if rank is not None:
        values["rank"] = rank
    if sequence is not None:
        values["seq"] = sequence
    values.update(vars(event))
    line = _line(values)
    while len(line) > LIMIT:
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        name = max(texts, key=lambda name: len(texts[name]))
        if len(texts[name]) < _SHORTEST_TEXT:
            raise ValueError(f"an event of {len(line)} bytes cannot be sent: {sorted(values)}")
        values[name] = "…" + texts[name][len(texts[name]) // 4 :]
        line = _line(values)
    return line


def _line(values: dict[str, object]) -> bytes:
    return (MARK + json.dumps(values, separators=(",", ":")) + "\n").encode()


def claim_stdout() -> int:
    """Reserve standard output for events and return its descriptor. Other output goes to standard error."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return private


class Emitter:
    """Sends a rank's events, in order, from any thread."""

    def __init__(self, rank: int, descriptor: int) -> None:
        self._rank = rank
        self._descriptor = descriptor
        self._sequence = 0
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            os.write(self._descriptor, encode(event, self._rank, self._sequence))
            self._sequence += 1

    def steps(self, seconds: list[float]) -> None:
        """Send step times, in as many lines as they need."""
        for first in range(0, len(seconds), STEPS_PER_LINE):
            self(Steps(first, [round(s, 7) for s in seconds[first : first + STEPS_PER_LINE]]))


class HeartbeatSender:
    """Sends a heartbeat once a second, so that the controller can tell a slow rank from one that hangs."""

    def __init__(self, emit: Emitter) -> None:
        self.phase = "start"
        self.step = 0
        self._emit = emit
        threading.Thread(target=self._send, name="heartbeat", daemon=True).start()

    def _send(self) -> None:
        pause = threading.Event()
        while not pause.wait(_HEARTBEAT_SECONDS):
            try:
                self._emit(Heartbeat(self.phase, self.step))
            except OSError:
                return  # the keeper has ended, and ends this process
