"""Sends events: encodes them as lines, numbers a rank's events, and sends its heartbeats."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time

from .events.base import LIMIT, MARK, Event

STEPS_PER_LINE = 200  # 200 numbers of at most 12 characters stay far below the limit
_HEARTBEAT_SECONDS = 1.0
_BEATS_PER_STACK = 5  # heartbeats without progress after which the calls are sent, and sent again if they changed
_MOST_CALLS, _LONGEST_NAME = 50, 30  # calls of a stack, and characters of a name: together they fit into a line
_SHORTEST_TEXT = 16  # characters: a shorter text is not cut


def encode(event: Event, rank: int | None = None, sequence: int | None = None) -> bytes:
    """Return the event as a line. A text that is too long loses its beginning, because errors are explained last."""
    values: dict[str, object] = {"kind": event.kind}
    if rank is not None:
        values["rank"] = rank
    if sequence is not None:
        values["seq"] = sequence
    values.update(vars(event))
    line = _encode_line(values)
    while len(line) > LIMIT:
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        name = max(texts, key=lambda name: len(texts[name]))
        if len(texts[name]) < _SHORTEST_TEXT:
            raise ValueError(f"an event of {len(line)} bytes cannot be sent: {sorted(values)}")
        values[name] = "…" + texts[name][len(texts[name]) // 4 :]
        line = _encode_line(values)
    return line


def _encode_line(values: dict[str, object]) -> bytes:
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

    def send_steps(self, seconds: list[float]) -> None:
        """Send step times, in as many lines as they need."""
        from .events.ranks import Steps  # not needed by a process that is no rank, which starts faster without it

        for first in range(0, len(seconds), STEPS_PER_LINE):
            self(Steps(first, [round(s, 7) for s in seconds[first : first + STEPS_PER_LINE]]))


class HeartbeatSender:
    """Sends a heartbeat once a second, so that the controller can tell a slow rank from one that hangs. Where the rank
    stays in one step, it also sends the calls in which the thread is that created this: so the controller can tell a
    rank that hangs from those that wait for it.
    """

    def __init__(self, emit: Emitter) -> None:
        self.phase = "start"
        self.step = 0
        self._emit = emit
        self._thread = threading.get_ident()
        threading.Thread(target=self._send, name="heartbeat", daemon=True).start()

    def _send(self) -> None:
        from .events.ranks import CallStack, Heartbeat

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
    """Return the calls in which a thread is, the outermost first. Of very many, those in the middle are left out."""
    frame, calls = sys._current_frames().get(thread), []
    while frame is not None:
        file, function = _shorten_name(os.path.basename(frame.f_code.co_filename)), _shorten_name(frame.f_code.co_name)  # noqa: PTH119
        calls.append(f"{file}:{frame.f_lineno} {function}")
        frame = frame.f_back
    calls.reverse()
    return calls if len(calls) <= _MOST_CALLS else [*calls[: _MOST_CALLS - 1], calls[-1]]


def _shorten_name(name: str) -> str:
    """Return the end of a name, in characters that need one byte each in a line of JSON."""
    return re.sub(r"[^!#-\[\]-~]", "?", name[-_LONGEST_NAME:])
