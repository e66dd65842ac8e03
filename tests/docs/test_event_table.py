"""The list of events in the documentation has the events that there are."""

from pathlib import Path

from trainscale.worker.events import EVENTS

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def make_event_list() -> str:
    lines = []
    for event in EVENTS.values():
        description = " ".join((event.__doc__ or "").split()).rstrip(".")
        lines.append(f"- `{event.kind}` ({event.sender}): {description}")
    return "\n".join(lines)


def test_the_list_of_events_is_made_from_their_classes() -> None:
    """To write it anew: python tests/docs/test_event_table.py."""
    assert f"\n{make_event_list()}\n\n" in ARCHITECTURE.read_text()


if __name__ == "__main__":
    print(make_event_list())
