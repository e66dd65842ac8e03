"""Short trials of a search count only at points that were not measured in full."""

from __future__ import annotations

from collections.abc import Iterable

from ..record.trial import TrialRecord
from .throughput import is_measured


def drop_superseded(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the records without the short trials of points that also have a result in full."""
    all_records = list(records)
    in_full = {r.trial.point for r in all_records if not r.trial.short and is_measured(r)}
    return [record for record in all_records if not (record.trial.short and record.trial.point in in_full)]
