"""The verdicts with which a run ends: one sentence for each series, about its largest point."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.explanation.explain import UNKNOWN, PointExplanation, explain_records
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from .explanation_sentences import describe_verdict


def list_closing_verdicts(run: RunInfo, records: Sequence[TrialRecord]) -> list[str]:
    """Return a sentence for every series that can be explained. A search and a training to an accuracy have none."""
    if run.is_search or any(record.epochs for record in records):
        return []
    largest: dict[str, PointExplanation] = {}
    for point in explain_records(records):
        if point.loss is not None and point.verdict != UNKNOWN:
            largest[point.title] = point  # device counts ascend
    has_several = len(largest) > 1
    return [f"{describe_verdict(point, with_title=has_several)}." for point in largest.values()]
