"""Event lines as they are on the wire, for tests of what a process of the worker prints."""

from __future__ import annotations

import json
from typing import Any

from trainscale.worker.events import MARK


def decode(line: str) -> dict[str, Any] | None:
    """Return the values of an event line, or None for any other line."""
    return dict(json.loads(line[len(MARK) :])) if line.startswith(MARK) else None
