"""Lines ``key: value unit``; programs such as ReFrame and JUBE read them with a regular expression.

A key has only letters, digits, ``_``, ``-`` and ``.``; a value is a decimal number; a unit has no spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..analyse.series import Point, Series
from ..analyse.throughput import is_measured
from ..record.trial import SKIPPED, TrialRecord
from ..report.csv_json import make_series_paths, make_slug


@dataclass(frozen=True)
class SummaryLine:
    key: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.key}: {self.value:.6g} {self.unit}"


def list_summary_lines(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> Iterator[SummaryLine]:
    """Yield the lines of a run: how many trials there are, how many failed, then every point with a result."""
    paths = make_series_paths([series.config for series in all_series], lambda config: make_slug(config.framework))
    names = {config: path.replace("/", "_") for config, path in paths.items()}  # torch_alexnet_b32, unique in the run
    counted = [record for record in records if record.status != SKIPPED]
    failed = sum(not is_measured(record) for record in counted)
    yield SummaryLine("trials", len(counted), "trials")
    yield SummaryLine("failed_trials", failed, "trials")
    for series in all_series:
        for point in series.good:
            yield from _list_point_lines(f"{names[series.config]}.n{point.devices}", point)


def _list_point_lines(prefix: str, point: Point) -> Iterator[SummaryLine]:
    if point.samples_per_second:
        unit = make_unit_name(point)
        yield SummaryLine(f"{prefix}.{unit}_per_second", point.samples_per_second.mean, f"{unit}/s")
    if point.step_seconds is not None:
        yield SummaryLine(f"{prefix}.step_time", point.step_seconds * 1000, "ms")
    if point.speedup:
        yield SummaryLine(f"{prefix}.speedup", point.speedup.mean, "times")
    if point.efficiency:
        yield SummaryLine(f"{prefix}.efficiency", point.efficiency.mean * 100, "%")


def make_unit_name(point: Point) -> str:
    """Return the unit of a point's samples as a part of a name. A plug-in chooses its own."""
    return re.sub(r"[^A-Za-z0-9]+", "_", point.unit)
