"""The lines of a log, each of any length, and the numbers in them, which may have any number of digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from .text import remove_unprintable

LONGEST_LINE = 1 << 20  # characters of a line of a log; a longer one is cut
LONGEST_RECORD = 1 << 28  # characters of a line of a journal
_MOST_DIGITS = 18  # of an epoch, a batch or a step


def join_lines(pieces: Iterable[str], longest: int) -> Iterator[str]:
    """Join the pieces of each line. A line is cut where it becomes longer than ``longest``, before the last word that
    fits, because half a number would be another number.
    """
    parts: list[str] = []
    length = 0
    for piece in pieces:
        if length <= longest:
            parts.append(piece)
        length += len(piece)
        if piece.endswith("\n"):
            yield _cut("".join(parts), length, longest)
            parts, length = [], 0
    if parts:
        yield _cut("".join(parts), length, longest)


def _cut(line: str, length: int, longest: int) -> str:
    if length <= longest:
        return remove_unprintable(line)
    start = line[:longest]
    return remove_unprintable(start[: max(start.rfind(" "), start.rfind("\t"), 0)])


def parse_whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; valid: at most {_MOST_DIGITS}")
    return int(text)


def parse_finite(text: str, name: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{name} is infinite")
    return value
