"""Two sides compared point by point, with one verdict for the curve and one for the gate that a person has set.

Every interval has the confidence 1 - 0.05/m, where m points are looked at (Bonferroni), so that with a probability of
95 % all of them contain the truth. Then every verdict that rests on them is right at once.

Where other programs used a machine, that may be the whole difference. Then an interval must lie so far from 1 (or from
the bound of the gate) that what those programs used does not explain it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ..estimates import Estimate, count_repeats, ratio
from ..statistics import CONFIDENCE, Interval
from .differences import Difference, list_common_devices
from .matching import Pair, check_sides
from .sides import Side, SidePoint

FASTER, SLOWER, MIXED, SAME, UNKNOWN = "faster", "slower", "mixed", "same", "unknown"
PASS, FAIL = "pass", "fail"  # of a gate, besides UNKNOWN
THRESHOLD, AT_LEAST = "threshold", "at least"
DEFAULT_MARGIN = 0.02  # two runs are the same if all intervals lie within this; teams alert at 2 %


@dataclass(frozen=True)
class Gate:
    """A demand on every ratio: it is at least ``bound``. ``kind`` says how the person put it."""

    kind: str
    bound: float


@dataclass(frozen=True)
class ComparedPoint:
    """A device count that both sides have. ``ratio`` is B/A of the speed, None if a side has no result.

    ``outcome`` is that of the gate; None without a gate, or if A has no result either. ``repeats_for_verdict`` and
    ``repeats_for_gate`` are roughly how many repeats on each side would decide what is unknown; None where that is
    decided, not known, or very many.
    """

    devices: int
    a: SidePoint
    b: SidePoint
    ratio: Interval | None
    efficiency_ratio: Interval | None
    verdict: str
    outcome: str | None = None
    repeats_for_verdict: int | None = None
    repeats_for_gate: int | None = None
    is_hidden: bool = False  # whether only other programs on the machine prevent a verdict

    @property
    def is_lost(self) -> bool:
        """Whether only A has a result."""
        return self.a.speed is not None and self.b.speed is None


@dataclass(frozen=True)
class Curve:
    """Two series and the points that both have. ``only_a`` and ``only_b`` are the device counts of one side alone.

    ``within`` is how far the intervals reach from 1 at most, None without intervals.
    """

    a: Side
    b: Side
    points: tuple[ComparedPoint, ...]
    verdict: str
    within: float | None
    differences: tuple[Difference, ...]  # that the person allowed
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """``confidence`` is that of a single interval. ``margin`` is what SAME allows."""

    curves: tuple[Curve, ...]
    verdict: str
    confidence: float
    margin: float
    gate: Gate | None = None
    outcome: str | None = None

    @property
    def points(self) -> tuple[ComparedPoint, ...]:
        return tuple(point for curve in self.curves for point in curve.points)

    @property
    def has_interval(self) -> bool:
        """Whether any point has repeats enough on both sides for an interval, or has lost its result."""
        return any(point.ratio is None or point.ratio.low is not None for point in self.points)

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The device counts that only A has."""
        return tuple(sorted({count for curve in self.curves for count in curve.only_a}))


def compare_pairs(
    pairs: Sequence[Pair],
    despite: Collection[str] = (),
    gate: Gate | None = None,
    devices: Collection[int] | None = None,
) -> Comparison:
    """Compare series with their counterparts. ``devices`` are the counts to look at, None means all.

    An InputError says what differs, or that no point has a result on both sides.
    """
    allowed = [check_sides(a, b, despite) for a, b in pairs]
    counts = [_list_device_counts(a, b, devices) for a, b in pairs]
    measured = sum(_is_measured(*pair, count) for pair, of_pair in zip(pairs, counts, strict=True) for count in of_pair)
    if not measured:
        raise InputError(_explain_nothing_to_compare(pairs, devices))
    margin = round(1 - gate.bound, 12) if gate and gate.kind == THRESHOLD else DEFAULT_MARGIN
    rule = _Rule(1 - (1 - CONFIDENCE) / measured, margin, gate, devices)
    curves = tuple(
        _compare(pair, of_pair, differences, rule)
        for pair, of_pair, differences in zip(pairs, counts, allowed, strict=True)
    )
    outcome = _combine_outcomes(curves) if gate else None
    verdict = combine_verdicts(curve.verdict for curve in curves)
    return Comparison(curves, verdict, rule.confidence, margin, gate, outcome)


def combine_verdicts(verdicts: Iterable[str]) -> str:
    """Return one verdict for many. A difference that was shown counts more than what is unknown elsewhere."""
    all_verdicts = set(verdicts)
    if MIXED in all_verdicts or {FASTER, SLOWER} <= all_verdicts:
        return MIXED
    if all_verdicts == {SAME}:
        return SAME
    return next((verdict for verdict in (SLOWER, FASTER) if verdict in all_verdicts), UNKNOWN)


@dataclass(frozen=True)
class _Rule:
    confidence: float
    margin: float
    gate: Gate | None
    devices: Collection[int] | None


def _compare(pair: Pair, counts: Sequence[int], differences: tuple[Difference, ...], rule: _Rule) -> Curve:
    a, b = pair
    points = tuple(_compare_point(a, b, count, rule) for count in counts)

    def only(side: Side, other: Side) -> tuple[int, ...]:
        alone = side.points.keys() - other.points.keys()
        return tuple(sorted(count for count in alone if rule.devices is None or count in rule.devices))

    return Curve(
        a, b, points,
        verdict=combine_verdicts(point.verdict for point in points if point.ratio),
        within=_find_largest_deviation(points),
        differences=differences,
        only_a=only(a, b),
        only_b=only(b, a),
    )  # fmt: skip


def _compare_point(a: Side, b: Side, devices: int, rule: _Rule) -> ComparedPoint:
    ours, theirs = a.points[devices], b.points[devices]
    if ours.speed is None or theirs.speed is None:
        return ComparedPoint(devices, ours, theirs, None, None, UNKNOWN, FAIL if rule.gate and ours.speed else None)
    interval = ratio([theirs.speed], [ours.speed], rule.confidence)
    undisturbed = _allow_for_others(interval, a, b, devices)
    verdict, outcome = _decide_verdict(undisturbed, rule.margin), _decide_outcome(undisturbed, rule.gate)
    is_hidden = (verdict, outcome) != (_decide_verdict(interval, rule.margin), _decide_outcome(interval, rule.gate))
    for_verdict = for_gate = None
    if verdict == UNKNOWN and not is_hidden:
        reach = _find_reach_for_verdict(interval.mean, rule.margin)
        for_verdict = count_repeats(ours.speed, theirs.speed, reach, rule.confidence)
    if rule.gate and outcome == UNKNOWN and not is_hidden:
        reach = abs(math.log(interval.mean / rule.gate.bound))
        for_gate = count_repeats(ours.speed, theirs.speed, reach, rule.confidence)
    efficiency = _compare_efficiency(a, b, devices, rule.confidence)
    return ComparedPoint(
        devices, ours, theirs, interval, efficiency, verdict, outcome, for_verdict, for_gate, is_hidden
    )


def _allow_for_others(interval: Interval, a: Side, b: Side, devices: int) -> Interval:
    """Return the interval with all values that the ratio may have had on idle machines."""
    lost_a, lost_b = a.estimate_lost_share(devices), b.estimate_lost_share(devices)
    of_baseline = b.points[devices].baseline_lost if b.sessions == 1 else 0.0
    if interval.low is None or interval.high is None:
        return interval
    high = interval.high / (1 - lost_b) if lost_b < 1 else math.inf
    return Interval(interval.mean, interval.low * (1 - lost_a) * (1 - of_baseline), high)


def _compare_efficiency(a: Side, b: Side, devices: int, confidence: float) -> Interval | None:
    """Return B/A of the efficiency, where both have their 1-device point."""
    parts: list[Estimate] = []
    for side, count in ((b, devices), (a, 1), (a, devices), (b, 1)):
        point = side.points.get(count)
        if point is None or point.speed is None or point.speed.repeats is None or devices == 1:
            return None
        parts.append(point.speed)
    return ratio(parts[:2], parts[2:], confidence)


def _decide_verdict(interval: Interval, margin: float) -> str:
    if interval.low is None or interval.high is None:
        return UNKNOWN
    if interval.low > 1:
        return FASTER
    if interval.high < 1:
        return SLOWER
    return SAME if interval.low >= 1 - margin and interval.high <= 1 + margin else UNKNOWN


def _decide_outcome(interval: Interval, gate: Gate | None) -> str | None:
    if gate is None:
        return None
    if interval.low is None or interval.high is None:
        return UNKNOWN
    return PASS if interval.low > gate.bound else FAIL if interval.high < gate.bound else UNKNOWN


def _find_reach_for_verdict(mean: float, margin: float) -> float:
    """Return how far an interval around ``mean`` may reach (log scale) for a verdict.

    Either 1 must lie outside, or all of the interval within the margin, whichever needs fewer repeats.
    """
    difference = abs(math.log(mean))
    return max(difference, math.log1p(margin) - difference)


def _combine_outcomes(curves: Sequence[Curve]) -> str:
    """Return one outcome for all points. A point that B has not measured has not passed."""
    outcomes = {point.outcome for curve in curves for point in curve.points}
    if FAIL in outcomes:
        return FAIL
    return UNKNOWN if UNKNOWN in outcomes or any(curve.only_a for curve in curves) else PASS


def _find_largest_deviation(points: Sequence[ComparedPoint]) -> float | None:
    intervals = [point.ratio for point in points if point.ratio]
    ends = [end for interval in intervals for end in (interval.low, interval.high) if end is not None]
    return max((abs(end - 1) for end in ends), default=None)


def _list_device_counts(a: Side, b: Side, devices: Collection[int] | None) -> list[int]:
    return [count for count in list_common_devices(a, b) if devices is None or count in devices]


def _is_measured(a: Side, b: Side, devices: int) -> bool:
    return a.points[devices].speed is not None and b.points[devices].speed is not None


def _explain_nothing_to_compare(pairs: Sequence[Pair], devices: Collection[int] | None) -> str:
    common = sorted({count for a, b in pairs for count in list_common_devices(a, b) if _is_measured(a, b, count)})
    if devices is not None and common:
        wanted, valid = (", ".join(map(str, counts)) for counts in (sorted(devices), common))
        return f"--devices {wanted}: not measured in both; valid: {valid}"
    return "no device count has a result in both A and B, so there is nothing to compare"
