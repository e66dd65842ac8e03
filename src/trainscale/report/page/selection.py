"""Which series the charts of a page show. More than a few dozen lines cannot be told apart, and would make it large."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyse.series import Series

MOST_SERIES = 24


def choose_charted(all_series: Sequence[Series]) -> list[Series]:
    """Return all series, or the fastest ones if they are too many, in their order. The tables have all."""
    if len(all_series) <= MOST_SERIES:
        return list(all_series)
    fastest = sorted(all_series, key=_find_highest_speed, reverse=True)[:MOST_SERIES]
    titles = {series.title for series in fastest}
    return [series for series in all_series if series.title in titles]


def _find_highest_speed(series: Series) -> float:
    return max((point.samples_per_second.mean for point in series.points if point.samples_per_second), default=0.0)
