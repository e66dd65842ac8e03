"""What failed and why, over all series. Failures of the same kind and reason share a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...analyse.series import Series
from ...record.decoding import find_first_line
from .. import numbers, wording
from ..table import Grid

MOST_ROWS = 200


def make_failure_grid(all_series: Sequence[Series]) -> Grid | None:
    """Return None if every trial gave a result."""
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for series in all_series:
        for point in series.points:
            for failure in point.failures:
                key = (series.title, wording.name_status(failure.kind), find_first_line(failure.message))
                groups[key].append(point.devices)
    if not groups:
        return None
    rows = [
        (
            title,
            ", ".join(map(numbers.format_integer, dict.fromkeys(counts))),
            numbers.format_integer(len(counts)),
            status,
            reason,
        )
        for (title, status, reason), counts in groups.items()
    ]
    left_out = len(rows) - MOST_ROWS
    note = f"{numbers.format_integer(left_out)} more kinds of failures are in results.json." if left_out > 0 else ""
    header = ("series", "devices", "trials", "status", "reason")
    return Grid("What failed", header, tuple(rows[:MOST_ROWS]), note, left=(0, 3, 4))
