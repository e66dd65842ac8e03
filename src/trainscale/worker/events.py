"""Contract 2, process → controller: lines ``@trainscale {json}`` on standard output, each under 4,096 bytes.

A pipe writes at most 4,096 bytes in one piece, so no line is ever split; every line carries its rank and a sequence
number, so a lost one is noticed. Kinds: hello, ready, steps, memory, heartbeat, result, error from a rank, limit where
its memory is limited; log, nvml, exit, deadline, end from the keeper.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

MARK = "@trainscale "
LIMIT = 4096
_CHUNK = 200  # step times a line: 200 numbers of at most 12 characters stay far below the limit
_HEARTBEAT_SECONDS = 1.0


def encode(event: dict[str, Any]) -> bytes:
    """One line. A text that is too long loses its beginning, because the end of an error says the most."""
    line = _line(event)
    while len(line) > LIMIT:
        name = max((n for n in event if isinstance(event[n], str)), key=lambda n: len(event[n]), default=None)
        if name is None or len(event[name]) < 16:
            raise ValueError(f"an event of {len(line)} bytes cannot be sent: {sorted(event)}")
        event = {**event, name: "…" + event[name][len(event[name]) // 4 :]}
        line = _line(event)
    return line


def _line(event: dict[str, Any]) -> bytes:
    return (MARK + json.dumps(event, separators=(",", ":")) + "\n").encode()


def decode(line: str) -> dict[str, Any] | None:
    """The event in a line, or None when the line is not one."""
    if not line.startswith(MARK):
        return None
    try:
        event = json.loads(line[len(MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def claim_stdout() -> int:
    """Keep standard output for events alone: whatever else prints goes to standard error, and so to the log."""
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

    def __call__(self, kind: str, **values: Any) -> None:
        with self._lock:
            line = encode({"kind": kind, "rank": self._rank, "seq": self._sequence, **values})
            os.write(self._descriptor, line)
            self._sequence += 1

    def steps(self, seconds: list[float]) -> None:
        for start in range(0, len(seconds), _CHUNK):
            self("steps", first=start, seconds=[round(s, 7) for s in seconds[start : start + _CHUNK]])


class Heartbeat:
    """Says once a second how far this rank is, so that the controller can tell a slow rank from one that hangs."""

    def __init__(self, emit: Emitter) -> None:
        self.phase = "start"
        self.step = 0
        self._emit = emit
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(_HEARTBEAT_SECONDS):
            try:
                self._emit("heartbeat", phase=self.phase, step=self.step)
            except OSError:
                return  # the keeper is gone; this process is about to be ended
