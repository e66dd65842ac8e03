"""What the controller tells a keeper: JSON lines on the keeper's standard input, each one of these dataclasses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class SignalRequest:
    """Send a signal to all tasks."""

    signal: int


KeeperRequest = Union[PortsRequest, TasksRequest, SignalRequest]


def encode_request(request: KeeperRequest) -> bytes:
    return json.dumps(asdict(request)).encode() + b"\n"


def decode_request(line: bytes) -> KeeperRequest:
    values = json.loads(line)
    if "ports" in values:
        return PortsRequest(**values)
    if "signal" in values:
        return SignalRequest(**values)
    return TasksRequest(**{**values, "tasks": tuple(Task(**task) for task in values["tasks"])})


def encode_tasks(tasks: Iterable[Task], deadline_seconds: float, silence_seconds: float | None = None) -> bytes:
    """Return the line that makes a keeper start these tasks."""
    return encode_request(TasksRequest(tuple(tasks), deadline_seconds, silence_seconds))
