"""What the first screen says in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyse.explanation.explain import UNKNOWN, PointExplanation
from ...analyse.series import Series
from .. import wording
from ..explanation_sentences import verdict_sentence


def find_verdict(explanations: Sequence[PointExplanation], all_series: Sequence[Series], is_named: bool = False) -> str:
    """Return the verdict on the most devices that can be explained; else what the first series with a result reached.

    A run that trains to an accuracy is about that, so its accuracy is the verdict. Empty if nothing was measured.
    It names its series where there are several, or ``is_named``.
    """
    learns = any(series.learns for series in all_series)
    known = [point for point in explanations if point.loss is not None and point.verdict != UNKNOWN]
    if known and not learns:
        point = max(known, key=lambda point: point.devices)  # the first of several
        subject = f"{point.title}: " if is_named or len(all_series) > 1 else ""
        return f"{subject}{verdict_sentence(point)}."
    series = next((series for series in all_series if series.good), None)
    if series is None:
        return "No trial gave a result." if all_series else ""
    return f"{series.title}: {wording.headline(series)}."
