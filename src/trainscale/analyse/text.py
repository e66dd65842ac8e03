"""Cleaning text that processes printed, so that a terminal, HTML or XML can show it."""

from __future__ import annotations

import re

# Terminal colours and cursor moves, and all control characters except newline and tab, which XML does not allow.
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def remove_unprintable(text: str) -> str:
    return _UNPRINTABLE.sub("", text)


def find_first_line(text: str) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in remove_unprintable(text).splitlines() if line.strip()), "")
