"""Events as the controller reads them: decoded from the lines of a keeper into the dataclasses of worker/events/, whose
field types are checked.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TypeVar

from ..record.decoding import DecodingError, convert
from ..worker.events import EVENTS, MARK, Event

AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of a kind that this version does not know, or, with a ``problem``, one that cannot be decoded."""

    event_kind: str
    problem: str = ""


@dataclass(frozen=True)
class ReceivedEvent:
    """An event with the host that sent it. Events of a task carry its rank, those of a rank a sequence number too."""

    host: str
    event: Event
    rank: int | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class HostLost(Event):
    """A keeper has ended without its last event. ``culprit`` is the host that caused it, or empty if no host did or if
    that cannot be known; ``stderr_tail`` is what its program had printed. A keeper that a signal told to end
    (``was_ended``) is no cause, if another is lost: mpirun ends all keepers when it loses one of them.
    """

    culprit: str
    stderr_tail: tuple[str, ...] = ()
    was_ended: bool = False


def decode_line(line: str, host: str = "") -> ReceivedEvent | None:
    """Return the event in a line, or None if the line holds none."""
    if not line.startswith(MARK):
        return None
    try:
        values = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):  # a rank may print anything
        return None
    if not isinstance(values, dict) or "kind" not in values:
        return None
    kind, rank, sequence = str(values["kind"]), values.get("rank"), values.get("seq")
    event: Event
    try:
        event = convert(values, EVENTS[kind]) if kind in EVENTS else UnknownEvent(kind)
    except DecodingError as error:
        event = UnknownEvent(kind, str(error))
    rank = rank if isinstance(rank, int) else None
    return ReceivedEvent(host, event, rank, sequence if isinstance(sequence, int) else None)


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(code: int) -> str:
    """Return "was ended by SIGKILL" for a negative exit code, else "ended with exit code 3"."""
    return f"was ended by {name_signal(-code)}" if code < 0 else f"ended with exit code {code}"
