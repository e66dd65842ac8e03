"""Decodes event lines into the dataclasses of worker/events/, and checks the types of their fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeVar

from ...record.decoding import DecodingError, convert
from ...worker.events import EVENTS, MARK, Event

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
    rank, sequence = values.get("rank"), values.get("seq")
    return ReceivedEvent(
        host,
        _convert(values),
        rank if isinstance(rank, int) else None,
        sequence if isinstance(sequence, int) else None,
    )


def find_events(text: str, kind: type[AnyEvent]) -> list[AnyEvent]:
    """Return all events of one kind in what a program printed."""
    received = [decode_line(line) for line in text.splitlines()]
    return [line.event for line in received if line is not None and isinstance(line.event, kind)]


def _convert(values: dict[str, object]) -> Event:
    kind = str(values["kind"])
    if kind not in EVENTS:
        return UnknownEvent(kind)
    try:
        return convert(values, EVENTS[kind])
    except DecodingError as error:
        return UnknownEvent(kind, str(error))
