"""Runs one process that computes numbers on one host, untimed, and collects what it sends."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from ...worker.events import Deadline, Exit, ExpectationDone, NumbersPiece, ParityDone, RankError
from ...worker.job import Task
from ..connected_hosts import ConnectedHosts
from ..connection import HostError
from ..events import HostLost, describe_exit
from ..launchers.base import Launcher

OnConnect = Callable[[ConnectedHosts], None]


@dataclass(frozen=True)
class EncodedNumbers:
    """What a process computed. ``head`` is JSON that describes ``values``, which have eight bytes each."""

    head: bytes
    values: bytes
    seconds: float


class NumbersFailed(Exception):
    """A process could not compute its numbers; the message says why."""


def compute_numbers(
    launcher: Launcher,
    host: str,
    make_task: Callable[[ConnectedHosts], Task],
    seconds: float,
    on_connect: OnConnect = lambda _: None,
) -> EncodedNumbers:
    """Return the numbers, or raise NumbersFailed. ``on_connect`` gets the connection, to end it from another thread."""
    try:
        with launcher.connect([host]) as connected:
            on_connect(connected)
            connected.start([make_task(connected)], seconds)
            return _read_numbers(connected, seconds)
    except HostError as error:
        raise NumbersFailed(str(error)) from None


def _read_numbers(connected: ConnectedHosts, seconds: float) -> EncodedNumbers:
    pieces: list[bytes] = []
    outcome: ParityDone | ExpectationDone | RankError | None = None
    for received in connected.read_events(seconds + 60):
        match received.event:
            case NumbersPiece(data=data):
                pieces.append(base64.b64decode(data))
            case ParityDone() | ExpectationDone() | RankError():
                outcome = received.event
            case Exit():
                if isinstance(outcome, ParityDone | ExpectationDone):
                    head, _, values = b"".join(pieces).partition(b"\n")
                    return EncodedNumbers(head, values, outcome.seconds)
                raise NumbersFailed(_explain_exit(outcome, received.event))
            case HostLost(stderr_tail=tail):
                raise NumbersFailed(tail[-1] if tail else f"{received.host} ended without a message")
            case Deadline():
                break
    raise NumbersFailed(f"still computing after {seconds:.0f} s")


def _explain_exit(error: RankError | None, exit_event: Exit) -> str:
    if error is not None:
        return error.message
    last_line = (exit_event.tail.strip().splitlines() or ["no message"])[-1]
    return f"{describe_exit(exit_event.code)}: {last_line}"
