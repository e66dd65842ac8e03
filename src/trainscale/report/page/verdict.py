"""What the first screen says: what was reached, where the efficiency went, and what to doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...analyse.series import Series
from ...questions.explain.explain import UNKNOWN, PointExplanation
from ...questions.explain.text import describe_verdict
from .. import numbers, wording
from .redaction import Redaction

MOST_DOUBTS = 2  # on the first screen; all flags are in the tables of points


@dataclass(frozen=True)
class Finding:
    """What was found out about a run, in sentences."""

    subject: str  # the title of the series; empty where there is no other
    result: str
    verdict: str = ""  # of explain; empty where nothing can be explained
    doubts: tuple[str, ...] = ()  # flags of the series, those of the most devices first
    further_doubts: int = 0  # flags that are not in doubts

    def redact(self, redaction: Redaction) -> Finding:
        return replace(
            self,
            result=redaction.redact_text(self.result),
            verdict=redaction.redact_text(self.verdict),
            doubts=tuple(map(redaction.redact_text, self.doubts)),
        )


def find_verdict(
    explanations: Sequence[PointExplanation], all_series: Sequence[Series], is_named: bool = False
) -> Finding | None:
    """Return the verdict on the most devices that can be explained; else what the first series with a result reached.

    A run that trains to an accuracy is about that, so its accuracy is the verdict. None if nothing was measured. It
    names its series where there are several, or ``is_named``.
    """
    if not all_series:
        return None
    series_by_title = {series.title: series for series in all_series}
    known = [
        point
        for point in explanations
        if point.loss is not None and point.verdict != UNKNOWN and point.title in series_by_title
    ]
    if known and not any(series.learns for series in all_series):
        explained = max(known, key=lambda point: point.devices)  # the first of several
        series, verdict = series_by_title[explained.title], f"{describe_verdict(explained)}."
    else:
        with_result = [series for series in all_series if series.good]
        if not with_result:
            return Finding("", "No trial gave a result.")
        series, verdict = with_result[0], ""
    doubts = _list_doubts(series)
    return Finding(
        subject=series.title if is_named or len(all_series) > 1 else "",
        result=f"{_describe_result(series)}.",
        verdict=verdict,
        doubts=tuple(doubts[:MOST_DOUBTS]),
        further_doubts=len(doubts[MOST_DOUBTS:]),
    )


def _describe_result(series: Series) -> str:
    """Return what the largest good point reached."""
    learnt = wording.describe_learning(series)
    if learnt:
        return f"{learnt}; {wording.describe_scaling(series)}"
    point = series.good[-1]
    if point.devices == 1 or point.speedup is None or point.samples_per_second is None:
        return wording.describe_scaling(series)
    devices, one_device = wording.format_devices_and_hosts(point), wording.format_device_count(1)
    factor = numbers.format_times(point.speedup).removesuffix("×")
    comparison = (
        f"{devices} are slower than {one_device}, {factor} times as fast"
        if point.speedup.mean < 1
        else f"{devices} are {factor} times as fast as {one_device}"
    )
    rate = f"{numbers.format_rate(point.samples_per_second.mean)} {point.unit}/s"
    return f"{comparison}: {rate}, {numbers.format_efficiency(point.efficiency)} efficiency"


def _list_doubts(series: Series) -> list[str]:
    """Return the flags of the points that the result depends on: the largest, and the others after it."""
    points = sorted(series.good, key=lambda point: point.devices, reverse=True)
    return [f"{wording.format_device_count(point.devices)}: {flag}" for point in points for flag in point.flags]
