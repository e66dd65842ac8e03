"""The table of events in the documentation shows the events that there are."""

from __future__ import annotations

from pathlib import Path

from event_table import make_event_table

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_table_of_events_is_made_from_their_classes() -> None:
    """To write it anew: python tests/support/event_table.py."""
    assert f"\n{make_event_table()}\n\n" in ARCHITECTURE.read_text()
