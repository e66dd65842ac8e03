"""What the controller requests from a keeper: JSON lines on its standard input, each one of these dataclasses."""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Union

from ..job import Task


@dataclass(frozen=True)
class PortsRequest:
    """Find this many free ports of the host. Valid until tasks are started."""

    ports: int


@dataclass(frozen=True)
class TasksRequest:
    """Start these tasks. End them after the deadline, or when the controller was silent for too long."""

    tasks: tuple[Task, ...]
    deadline_seconds: float
    silence_seconds: float | None = None  # None: silence does not matter
    shared: str = ""  # of the tasks, see Task
    stays: bool = False  # whether the keeper waits for further requests after its tasks have ended


@dataclass(frozen=True)
class SignalRequest:
    """Send a signal to all tasks."""

    signal: int


@dataclass(frozen=True)
class EndTasksRequest:
    """End all tasks. For keepers that do not stay, the end of their input means the same."""

    end_tasks: bool = True


KeeperRequest = Union[PortsRequest, TasksRequest, SignalRequest, EndTasksRequest]


def encode_request(request: KeeperRequest) -> bytes:
    return json.dumps(asdict(request)).encode() + b"\n"


def decode_request(line: bytes) -> KeeperRequest:
    values = json.loads(line)
    if "ports" in values:
        return PortsRequest(**values)
    if "signal" in values:
        return SignalRequest(**values)
    if "end_tasks" in values:
        return EndTasksRequest()
    shared = values.get("shared", "")
    return TasksRequest(**{**values, "tasks": tuple(Task(**{**task, "shared": shared}) for task in values["tasks"])})


def encode_tasks(
    tasks: Iterable[Task], deadline_seconds: float, silence_seconds: float | None = None, *, stays: bool = False
) -> bytes:
    """Return the line that makes a keeper start these tasks, which share the same text."""
    tasks = tuple(tasks)
    shared = tasks[0].shared if tasks else ""
    assert all(task.shared == shared for task in tasks)
    own = tuple(replace(task, shared="") for task in tasks)
    return encode_request(TasksRequest(own, deadline_seconds, silence_seconds, shared, stays))


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
