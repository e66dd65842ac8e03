"""Text that processes printed, made fit to be shown: in a terminal, in HTML, in XML."""

from __future__ import annotations

import re

# Terminal colours and cursor moves, and all control characters but newline and tab: XML cannot hold them.
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    return _UNPRINTABLE.sub("", text)


def first_line(text: str) -> str:
    """The first line of a message that says something."""
    return next((line.strip() for line in printable(text).splitlines() if line.strip()), "")
