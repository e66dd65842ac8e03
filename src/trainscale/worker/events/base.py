"""What all events have in common: how their lines look, and the base class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

MARK = "@trainscale "
LIMIT = 4096  # bytes of a line
RESULT_KIND = "result"  # the keeper looks for it, and needs no other event of a rank


@dataclass(frozen=True)
class Event:
    """What every event has."""

    kind: ClassVar[str] = ""
    sender: ClassVar[str] = ""
