"""Contract 2, process → controller: lines ``@trainscale {json}`` on standard output, each of
at most 4,096 bytes, which a pipe accepts in one piece: lines of several processes never mix.

An event of a rank carries the rank and a sequence number, so that a lost line is noticed. The
kinds, senders and docstrings also make the list in docs/architecture.md.
"""

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
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .sample import GpuState, Report

MARK = "@trainscale "
LIMIT = 4096  # bytes of a line


@dataclass(frozen=True)
class Event:
    kind: ClassVar[str]
    sender: ClassVar[str]

    def __init_subclass__(cls, kind: str = "", sender: str = "") -> None:
        cls.kind, cls.sender = kind, sender


# ---- of a rank


@dataclass(frozen=True)
class Hello(Event, kind="hello", sender="rank"):
    """The rank has imported its framework: its host, role, versions and allocator variables."""

    host: str
    pid: int
    role: str
    versions: dict[str, str]
    allocator: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready(Event, kind="ready", sender="rank"):
    """The network is built: its parameter count, and the unit in which its samples are counted."""

    parameters: int | None = None  # servers and schedulers may not know it
    unit: str = "images"


@dataclass(frozen=True)
class Heartbeat(Event, kind="heartbeat", sender="rank, once a second"):
    """The phase and step that the rank has reached, and the CPU seconds of its process so far."""

    phase: str
    step: int
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class CallStack(Event, kind="stack", sender="rank, after 5 s in the same step"):
    """The rank's Python call stack, outermost frame first, each as `FILE:LINE FUNCTION`."""

    calls: list[str]


@dataclass(frozen=True)
class MemoryLimit(Event, kind="limit", sender="rank, where its memory is limited"):
    """How much memory the rank may allocate."""

    memory_limit_bytes: int


@dataclass(frozen=True)
class Epoch(Event, kind="epoch", sender="rank 0, where it trains to an accuracy"):
    """One epoch of training to an accuracy, of all ranks together. The journal stores it as it is."""

    epoch: int  # from 1
    seconds: float  # of the training steps, without validation and the first step of the trial
    samples: int  # of these steps
    train_loss: float | None
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float
    valid_samples: int
    waited_seconds: float = 0.0
    evaluation_seconds: float = 0.0


@dataclass(frozen=True)
class ReportPiece(Event, kind="report", sender="worker, when all is measured"):
    """A piece of the JSON text of a worker's `Report`. The last one names the window."""

    text: str
    start: int  # the index of its first character in the whole text
    is_last: bool = False
    window_began: float | None = None
    window_seconds: float = 0.0


@dataclass(frozen=True)
class ServerResult(Event, kind="served", sender="server, scheduler"):
    """What one parameter server or scheduler served, as far as its framework reports it."""

    updates: int | None = None
    bytes: int | None = None  # of the weights that it holds
    staleness_mean: float | None = None  # updates between a worker's read and its write
    staleness_max: int | None = None


@dataclass(frozen=True)
class RankError(Event, kind="error", sender="rank, parity, expectation, program"):
    """The rank fails: `oom`, `port`, `refused` or `crash`, and one line of explanation."""

    error: str
    message: str


# ---- of roles that inspect a host: probe, parity, expectation, look and links


@dataclass(frozen=True)
class FrameworkFacts(Event, kind="probe", sender="probe"):
    """A framework's version, GPUs and users' networks; or the reason why it cannot be used."""

    is_available: bool
    reason: str = ""  # why it is not available
    install_command: str = ""
    version: str = ""
    versions: dict[str, str] = field(default_factory=dict)  # also of what it builds on
    gpus: list[str] = field(default_factory=list)  # names of those that the framework sees
    # Of each user's network: its parameter count, or what is wrong with it.
    models: dict[str, dict[str, int] | str] = field(default_factory=dict)


@dataclass(frozen=True)
class AnswerPiece(Event, kind="answer", sender="look, parity, expectation"):
    """A piece of a host's facts in JSON, or of numbers in base64, whose last piece says how long they took."""

    text: str
    seconds: float | None = None


@dataclass(frozen=True)
class Links(Event, kind="links", sender="links"):
    """The round trip to the next host and the bandwidth from the previous one, or errors."""

    round_trip_seconds: float | None = None
    send_error: str = ""
    bits_per_second: float | None = None
    receive_error: str = ""


# ---- of the keeper, of the bootstrap program before it, and of the Ray client


@dataclass(frozen=True)
class Bootstrap(Event, kind="bootstrap", sender="bootstrap"):
    """Whether the host has the worker; then where it is and which Python runs it, or an error."""

    has: bool | None = None
    start: str = ""
    python: str = ""
    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class Ports(Event, kind="ports", sender="keeper"):
    """Free ports of the keeper's host and the time of its clock, or an error."""

    ports: list[int] = field(default_factory=list)
    clock: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class LogLine(Event, kind="log", sender="keeper"):
    """A line that a task printed, or a part of a long one."""

    text: str
    stream: str = "stdout"
    more: bool = False  # the line continues in the next event of this stream


@dataclass(frozen=True)
class GpuFacts(Event, kind="gpu", sender="keeper, after the report and before the exit of a rank"):
    """The peak memory of a rank's processes on GPUs, or why it is unknown, and the GPU's state."""

    peak_bytes: int | None = None
    note: str = ""
    state: GpuState | None = None


@dataclass(frozen=True)
class Exit(Event, kind="exit", sender="keeper"):
    """A task's exit code (negative for a signal) and the last lines that it printed."""

    code: int
    tail: str = ""


@dataclass(frozen=True)
class Deadline(Event, kind="deadline", sender="keeper"):
    """The tasks have used up their time."""

    seconds: float


@dataclass(frozen=True)
class End(Event, kind="end", sender="keeper, as its last event"):
    """CPU seconds of the tasks and of the whole machine, and how many processes the kernel killed."""

    seconds: float
    own_cpu_seconds: float
    machine_busy_seconds: float | None = None
    waited_seconds: float | None = None  # in which some process had work but no core
    kernel_kills: int = 0
    signal: int | None = None  # that ended the keeper


@dataclass(frozen=True)
class RayReport(Event, kind="ray", sender="Ray client"):
    """The nodes that Ray gave, what it has not enough of, a lost node, or why nodes cannot be used."""

    nodes: int | None = None
    waiting: str = ""
    lost_address: str = ""
    lost: str = ""
    error: str = ""
    is_input_error: bool = False


EVENTS = {event.kind: event for event in Event.__subclasses__()}


# ---- sending

_PIECE = (LIMIT - 250) // 2  # characters of a report in a line; JSON may need two for one
_ARRAY_PIECE = 2700  # bytes of arrays in an event line: 3,600 as text
_HEARTBEAT_SECONDS = 1.0
_BEATS_PER_STACK = 5  # heartbeats without progress after which the stack is sent
_MOST_CALLS, _LONGEST_NAME = 50, 30  # of a stack; characters of a name
_SHORTEST_TEXT = 16  # characters: a shorter text is not cut
_TRACEBACK = "Traceback (most recent call last):"
# Lines before the one that explains an error of TensorFlow: headings, nodes and tracebacks.
_HEADING = re.compile(
    r"\s*$|=+$|\s*\^|  File |Traceback|Graph execution error|Detected at node|([A-Z_]+: )?From /job:\S*$|\s*\(\d+\)"
    r"|\d+ root error"
)


def encode(event: Event, rank: int | None = None, sequence: int | None = None) -> bytes:
    """Return the event as a line. A text that is too long loses its beginning."""
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


def find_explaining_line(text: str) -> str:
    """Return the line of an error that explains the most."""
    first, *others = [line for line in text.splitlines() if line.strip()] or [""]
    if first.endswith(_TRACEBACK):
        causes = [line for line in others if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return first[: -len(_TRACEBACK)] + (causes or others or [""])[-1].strip()
    return next((line for line in (first, *others) if not _HEADING.match(line)), first).strip()


def claim_stdout() -> int:
    """Keep standard output for events; other output goes to standard error."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return private


class Emitter:
    """Sends a rank's events from any thread."""

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
        text = json.dumps(report, default=vars, separators=(",", ":"), allow_nan=False)
        for start in range(0, len(text), _PIECE):
            piece, is_last = text[start : start + _PIECE], start + _PIECE >= len(text)
            self(ReportPiece(piece, start, is_last, report.window_began, report.sample.window_seconds))

    def send_arrays(self, arrays: Mapping[str, Any], counts: Mapping[str, Any], began: float) -> None:
        """Send a line of JSON with counts and sizes, then all values in eight bytes each."""
        sizes = {name: values.size for name, values in arrays.items()}
        head = json.dumps({**counts, "arrays": sizes}).encode() + b"\n"
        data = head + b"".join(values.astype("<f8").tobytes() for values in arrays.values())
        for start in range(0, len(data), _ARRAY_PIECE):
            seconds = time.perf_counter() - began if start + _ARRAY_PIECE >= len(data) else None
            piece = base64.b64encode(data[start : start + _ARRAY_PIECE])
            self(AnswerPiece(piece.decode(), seconds))


class HeartbeatSender:
    """Sends a heartbeat once a second, and the call stack of its creator's thread in a long step."""

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
    """Return a thread's calls, outermost first. A deep stack loses its middle frames."""
    frame, calls = sys._current_frames().get(thread), []
    for caller, line in traceback.walk_stack(frame) if frame else ():
        names = os.path.basename(caller.f_code.co_filename), caller.f_code.co_name
        # The ends of the names, in characters that need one byte each in a line of JSON.
        file, function = (re.sub(r"[^!#-\[\]-~]", "?", name[-_LONGEST_NAME:]) for name in names)
        calls.append(f"{file}:{line} {function}")
    calls.reverse()
    return calls if len(calls) <= _MOST_CALLS else [*calls[: _MOST_CALLS - 1], calls[-1]]
