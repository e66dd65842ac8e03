"""Texts that processes printed, for people."""

from __future__ import annotations

from ..record.decoding import remove_unprintable

__all__ = ["find_first_line", "remove_unprintable"]


def find_first_line(text: str) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in remove_unprintable(text).splitlines() if line.strip()), "")
