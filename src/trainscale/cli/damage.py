"""Says which lines of a journal cannot be read. What can be read is used."""

from __future__ import annotations

import sys


def warn_of_damage(message: str) -> None:
    print(f"trainscale: left out: {message}", file=sys.stderr)
