"""The words and numbers of a comparison: verdicts, ratios with their limits, shares, device counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analyse.comparison.compare import FASTER, SAME, SLOWER, UNKNOWN, ComparedPoint
from ..analyse.comparison.sides import Side, SidePoint
from ..analyse.series import Interval
from . import numbers, wording

PERCENT = f"{numbers.THIN}%"
_OF_SPEEDS = {FASTER: "faster", SLOWER: "slower", SAME: "same", UNKNOWN: "cannot tell"}
_OF_EFFICIENCIES = {**_OF_SPEEDS, FASTER: "higher", SLOWER: "lower"}


def choose_verdict_word(verdict: str, side: Side) -> str:
    """Return a verdict on what the sides have: speeds or efficiencies."""
    return (_OF_EFFICIENCIES if side.has_efficiencies else _OF_SPEEDS)[verdict]


def format_value(point: SidePoint, side: Side) -> str:
    if point.speed is None or not side.has_efficiencies:
        return numbers.format_rate(point.speed.mean if point.speed else None)
    return f"{point.speed.mean * 100:.1f}{PERCENT}"


def format_ratio_columns(interval: Interval | None) -> tuple[str, str]:
    """Format a ratio and its limits: 0.968 and 0.957–0.979."""
    if interval is None:
        return numbers.MISSING, ""
    return f"{interval.mean:.3f}", "" if interval.low is None else f"{interval.low:.3f}–{interval.high:.3f}"


def format_ratio(interval: Interval | None) -> str:
    """Format a ratio with its limits: 0.968 (0.957–0.979)."""
    mean, limits = format_ratio_columns(interval)
    return f"{mean} ({limits})" if limits else mean


def format_device_counts(points: Sequence[ComparedPoint]) -> str:
    return join_counts(dict.fromkeys(point.devices for point in points))


def join_counts(counts: Iterable[int]) -> str:
    values = list(counts)
    return wording.join_names(map(str, values)) + (" device" if values == [1] else " devices")


def format_share(share: float) -> str:
    return f"{format_percentage(share)}{PERCENT}"


def format_percentage(share: float) -> str:
    """Format a share as a percentage: 2.8, 12.3."""
    percent = share * 100
    return f"{percent:.2g}" if percent < 10 else f"{percent:.3g}"
