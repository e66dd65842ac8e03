"""The memory of a point: the largest peak of a rank in any repeat, and the largest sum over the ranks of a trial.

Ranks reach their peaks at different times, so a sum is an upper limit, not what was in use at a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..record.trial import RankSample, TrialRecord


class MemoryFields(TypedDict):
    """The fields of a Point about memory."""

    device_peak_bytes: int | None
    nvml_peak_bytes: int | None
    host_peak_bytes: int | None
    loaders_peak_bytes: int | None
    device_peak_bytes_sum: int | None
    nvml_peak_bytes_sum: int | None
    host_peak_bytes_sum: int | None
    nvml_note: str


def summarise_memory(records: Sequence[TrialRecord]) -> MemoryFields:
    """Return the memory of a point. A field is None if no rank has a value; a sum needs all ranks."""
    ranks = [rank for record in records for rank in record.ranks]
    notes = dict.fromkeys(rank.nvml_note for rank in ranks if rank.nvml_note)
    return MemoryFields(
        device_peak_bytes=_find_largest("device_peak_bytes", ranks),
        nvml_peak_bytes=_find_largest("nvml_peak_bytes", ranks),
        host_peak_bytes=_find_largest("host_peak_bytes", ranks),
        loaders_peak_bytes=_find_largest("loaders_peak_bytes", ranks),
        device_peak_bytes_sum=_sum("device_peak_bytes", records),
        nvml_peak_bytes_sum=_sum("nvml_peak_bytes", records),
        host_peak_bytes_sum=_sum("host_peak_bytes", records),
        nvml_note="; ".join(notes),
    )


def _find_largest(name: str, ranks: Sequence[RankSample]) -> int | None:
    return max((size for rank in ranks if (size := getattr(rank, name)) is not None), default=None)


def _sum(name: str, records: Sequence[TrialRecord]) -> int | None:
    sums = []
    for record in records:
        sizes = [getattr(rank, name) for rank in record.ranks]
        if None not in sizes:
            sums.append(sum(sizes))
    return max(sums, default=None)
