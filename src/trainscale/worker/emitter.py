"""Sends events: encodes them as lines, numbers a rank's events, and sends its heartbeats."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from .events import LIMIT, MARK, CallStack, Event, Heartbeat, NumbersPiece, ReportPiece
from .sample import Report

_PIECE = (LIMIT - 250) // 2  # characters of a report in an event line; in JSON a character may take two
_ARRAY_PIECE = 2700  # bytes of arrays in an event line: 3,600 as text
_HEARTBEAT_SECONDS = 1.0
_BEATS_PER_STACK = 5  # heartbeats without progress after which the stack is sent, and again if it has changed
_MOST_CALLS, _LONGEST_NAME = 50, 30  # calls of a stack, and characters of a name: together they fit into a line
_SHORTEST_TEXT = 16  # characters: a shorter text is not cut


def encode(event: Event, rank: int | None = None, sequence: int | None = None) -> bytes:
    """Return the event as a line. A text that is too long loses its beginning: errors are explained at their end."""
    head = {"kind": event.kind, "rank": rank, "seq": sequence}
    values = {**{name: value for name, value in head.items() if value is not None}, **vars(event)}
    while True:
        line = (MARK + json.dumps(values, separators=(",", ":"), default=vars) + "\n").encode()
        if len(line) <= LIMIT:
            return line
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        name = max(texts, key=lambda name: len(texts[name]))
        if len(texts[name]) < _SHORTEST_TEXT:
            raise ValueError(f"an event of {len(line)} bytes cannot be sent: {sorted(values)}")
        values[name] = "…" + texts[name][len(texts[name]) // 4 :]


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

    def send_report(self, report: Report) -> None:
        """Send a worker's report as JSON text, in as many lines as it needs."""
        text = json.dumps(report, default=vars, separators=(",", ":"), allow_nan=False)
        for start in range(0, len(text), _PIECE):
            piece, is_last = text[start : start + _PIECE], start + _PIECE >= len(text)
            self(ReportPiece(piece, start, is_last, report.window_began, report.sample.window_seconds))

    def send_arrays(self, arrays: Mapping[str, Any], counts: Mapping[str, Any], began: float) -> None:
        """Send numpy arrays in as many lines as they need: a line of JSON with what was counted and how many values
        each array has; then the values, eight bytes each. The controller reads them without numpy. ``began`` is when
        the computation began, by time.perf_counter.
        """
        sizes = {name: values.size for name, values in arrays.items()}
        head = json.dumps({**counts, "arrays": sizes}).encode() + b"\n"
        data = head + b"".join(values.astype("<f8").tobytes() for values in arrays.values())
        for start in range(0, len(data), _ARRAY_PIECE):
            seconds = time.perf_counter() - began if start + _ARRAY_PIECE >= len(data) else None
            self(NumbersPiece(base64.b64encode(data[start : start + _ARRAY_PIECE]).decode(), seconds))


class HeartbeatSender:
    """Sends a heartbeat once a second, so that the controller can tell a slow rank from one that hangs. A rank that
    stays in one step also sends the call stack of the thread that created this, for the message about a hang.
    """

    def __init__(self, emit: Emitter) -> None:
        self.phase = "start"
        self.step = 0
        self._emit = emit
        self._thread = threading.get_ident()
        threading.Thread(target=self._send, name="heartbeat", daemon=True).start()

    def _send(self) -> None:
        pause = threading.Event()
        reached, still_beats, sent_calls = ("", 0), 0, [""]
        while not pause.wait(_HEARTBEAT_SECONDS):
            position = (self.phase, self.step)
            still_beats = still_beats + 1 if position == reached else 0
            reached = position
            try:
                self._emit(Heartbeat(*position, cpu_seconds=round(time.process_time(), 2)))
                if not still_beats:
                    sent_calls = [""]
                elif still_beats % _BEATS_PER_STACK == 0:
                    calls = list_calls(self._thread)
                    if calls != sent_calls:
                        self._emit(CallStack(calls))
                        sent_calls = calls
            except OSError:
                return  # the keeper has ended, and ends this process


def list_calls(thread: int) -> list[str]:
    """Return a thread's call stack, outermost frame first. A deep stack loses its middle frames."""
    frame, calls = sys._current_frames().get(thread), []
    for caller, line in traceback.walk_stack(frame) if frame else ():
        names = os.path.basename(caller.f_code.co_filename), caller.f_code.co_name
        # The ends of the names, in characters that need one byte each in a line of JSON.
        file, function = (re.sub(r"[^!#-\[\]-~]", "?", name[-_LONGEST_NAME:]) for name in names)
        calls.append(f"{file}:{line} {function}")
    calls.reverse()
    return calls if len(calls) <= _MOST_CALLS else [*calls[: _MOST_CALLS - 1], calls[-1]]
