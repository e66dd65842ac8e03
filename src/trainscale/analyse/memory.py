"""The memory of a point: the most that a rank took in any repeat, and the most that all ranks of a trial took together.

Each rank's peak is at its own time, so a sum of them is what they need at most, not what was seen at a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..record.trial import RankSample, TrialRecord

_SUMMED = ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")


def memory(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """The fields of a Point that are about memory. Bytes, or None where no rank has a figure; a sum only where all
    ranks have one.
    """
    ranks = [rank for record in records for rank in record.ranks]
    notes = dict.fromkeys(rank.nvml_note for rank in ranks if rank.nvml_note)
    return {
        **{name: _largest(name, ranks) for name in (*_SUMMED, "loaders_peak_bytes")},
        **{f"{name}_sum": _sum(name, records) for name in _SUMMED},
        "nvml_note": "; ".join(notes),
    }


def _largest(name: str, ranks: Sequence[RankSample]) -> int | None:
    return max((size for rank in ranks if (size := getattr(rank, name)) is not None), default=None)


def _sum(name: str, records: Sequence[TrialRecord]) -> int | None:
    sums = []
    for record in records:
        sizes = [getattr(rank, name) for rank in record.ranks]
        if None not in sizes:
            sums.append(sum(sizes))
    return max(sums, default=None)
