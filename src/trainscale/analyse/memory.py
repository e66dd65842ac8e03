"""The memory of a point: the largest peak of a rank in any repeat, and the largest sum over the ranks of a trial.

Ranks reach their peaks at different times, so a sum is an upper limit, not what was in use at a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..record.trial import RankSample, TrialRecord

_SUMMED = ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")


def memory(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """Return the fields of a Point about memory, in bytes. None if no rank has a value; a sum needs all ranks."""
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
