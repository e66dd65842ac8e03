"""The table of events in docs/architecture.md, made from the dataclasses in worker/events/."""

from __future__ import annotations

from dataclasses import fields

from trainscale.worker.events import EVENTS, Event


def make_event_table() -> str:
    rows = ["| kind | class | from | says | fields |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*rows, *map(_row, EVENTS.values())])


def _row(event: type[Event]) -> str:
    description = " ".join((event.__doc__ or "").split()).rstrip(".")
    names = ", ".join(f"`{field.name}`" for field in fields(event))
    return f"| `{event.kind}` | `{event.__name__}` | {event.sender} | {description} | {names} |"


if __name__ == "__main__":
    print(make_event_table())
