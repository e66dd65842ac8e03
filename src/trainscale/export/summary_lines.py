"""Lines ``key: value unit``, which programs such as ReFrame and JUBE read with a regular expression.

A key has only letters, digits, ``_``, ``-`` and ``.``; a value is a decimal number; a unit has no spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..analyse.series import Point, Series
from ..analyse.throughput import is_measured
from ..record.trial import SKIPPED, TrialRecord
from .quantities import make_series_names, make_unit_name

FAILED_TRIALS = "failed_trials"


@dataclass(frozen=True)
class SummaryLine:
    key: str
    value: float
    unit: str
    more_is_better: bool = True

    def __str__(self) -> str:
        return f"{self.key}: {self.value:.6g} {self.unit}"


def list_summary_lines(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> Iterator[SummaryLine]:
    """Yield the lines of a run: how many trials there are, how many failed, then every point with a result."""
    names = make_series_names(all_series)
    counted = [record for record in records if record.status != SKIPPED]
    failed = sum(not is_measured(record) for record in counted)
    yield SummaryLine("trials", len(counted), "trials")
    yield SummaryLine(FAILED_TRIALS, failed, "trials", more_is_better=False)
    for series in all_series:
        for point in series.good:
            yield from _list_point_lines(f"{names[series.config]}.n{point.devices}", point)


def _list_point_lines(prefix: str, point: Point) -> Iterator[SummaryLine]:
    if point.samples_per_second:
        unit = make_unit_name(point)
        yield SummaryLine(f"{prefix}.{unit}_per_second", point.samples_per_second.mean, f"{unit}/s")
    if point.step_seconds is not None:
        yield SummaryLine(f"{prefix}.step_time", point.step_seconds * 1000, "ms", more_is_better=False)
    if point.speedup:
        yield SummaryLine(f"{prefix}.speedup", point.speedup.mean, "times")
    if point.efficiency:
        yield SummaryLine(f"{prefix}.efficiency", point.efficiency.mean * 100, "%")
