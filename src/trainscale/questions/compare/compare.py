"""Two sides compared point by point, with one verdict for the curve and one for the gate that a person has set.

Every interval has the confidence 1 - 0.05/m, where m points are looked at (Bonferroni), so that with a probability of
95 % all of them contain the truth. Then every verdict that rests on them is right at once.

Where other programs used a machine, that may be the whole difference. Then an interval must lie so far from 1 (or from
the bound of the gate) that what those programs used does not explain it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyse.series import column
from ...analyse.statistics import CONFIDENCE, Estimate, Interval, count_repeats, ratio
from ...errors import InputError, explain_unknown
from .differences import NAMES, Difference, Pair, check_sides, list_common_devices, match_sides
from .sides import EFFICIENCY, SPEED, Side, compare_with_published, list_titles, read_sides, select_series

if TYPE_CHECKING:
    from ...runs import Run

FASTER, SLOWER, MIXED, SAME, UNKNOWN = "faster", "slower", "mixed", "same", "unknown"
PASS, FAIL = "pass", "fail"  # of a gate, besides UNKNOWN
THRESHOLD, AT_LEAST = "threshold", "at least"
DEFAULT_MARGIN = 0.02  # two runs are the same if all intervals lie within this; teams alert at 2 %


@dataclass(frozen=True)
class Gate:
    """A demand on every ratio: it is at least ``bound``. ``kind`` says how the person put it."""

    kind: str
    bound: float


@dataclass(frozen=True, kw_only=True)
class ComparisonPoint:
    """A device count that both sides have."""

    series: str = column("title of the series in B")
    devices: int = column("workers")
    ratio: Interval | None = column("throughput of B over that of A; None if a side has no result")
    verdict: str = column("faster, slower, same or unknown")
    outcome: str | None = column("of the gate; None without a gate, or if A has no result", default=None)
    efficiency_ratio: Interval | None = column("the same of the efficiencies", default=None)
    a: Estimate | None = column("what A has; None without a result", default=None)
    b: Estimate | None = column("what B has; None without a result", default=None)
    repeats_for_verdict: int | None = column("on each side, to decide the verdict; None if unclear", default=None)
    repeats_for_gate: int | None = column("on each side, to decide the outcome; None if unclear", default=None)
    is_hidden: bool = column("whether only other programs on the machine prevent a verdict", default=False)

    @property
    def is_lost(self) -> bool:
        """Whether only A has a result."""
        return self.a is not None and self.b is None


@dataclass(frozen=True)
class Curve:
    """Two series and the points that both have. ``only_a`` and ``only_b`` are the device counts of one side alone.

    ``within`` is how far the intervals reach from 1 at most, None without intervals.
    """

    a: Side
    b: Side
    points: tuple[ComparisonPoint, ...]
    verdict: str
    within: float | None
    differences: tuple[Difference, ...]  # that the person allowed
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs compared point by point: B against A."""

    verdict: str = column("faster, slower, mixed, same or unknown")
    outcome: str | None = column("of the gate: pass, fail or unknown; None without a gate", default=None)
    curves: tuple[Curve, ...] = column("the pairs of series, each with its verdict")
    confidence: float = column("of a single interval; that of all together is 0.95")
    margin: float = column("how far from 1 a ratio may be that counts as the same")
    gate: Gate | None = column("what was demanded", default=None)

    @property
    def points(self) -> tuple[ComparisonPoint, ...]:
        """The points that both have."""
        return tuple(point for curve in self.curves for point in curve.points)

    @cached_property
    def text(self) -> str:
        """The same as Markdown."""
        from .text import render_markdown

        return render_markdown(self)

    @property
    def has_interval(self) -> bool:
        """Whether any point has repeats enough on both sides for an interval, or has lost its result."""
        return any(point.ratio is None or point.ratio.low is not None for point in self.points)

    def _repr_html_(self) -> str:
        from .text import render_html

        return render_html(self)


def compare_runs(
    a: Run | str | Path,
    b: Run | str | Path | None = None,
    *,
    threshold: float | str | None = None,
    at_least: float | str | None = None,
    despite: Sequence[str] = (),
    devices: Collection[int] | None = None,
    series: Sequence[str] = (),
    by: str | None = None,
    on_damage: Callable[[str], None] | None = None,
) -> RunComparison:
    """Compare what a person names; see ``trainscale.compare``. Without B, ``series`` are two series of one run."""
    from ..published.curves import PREFIX, find_curve

    gate = make_gate(threshold, at_least)
    for name in despite:
        if name not in NAMES:
            raise explain_unknown("name", name, NAMES, "--despite")
    if len(series) > 2:
        raise InputError(f"--series: given {len(series)} times; valid: once or twice")
    runs = [run for run in (a, b) if run is not None]
    published = [text for text in runs if isinstance(text, str) and text.startswith(PREFIX)]
    if by and not published:
        raise InputError("--by: valid with a published curve, published:ID; runs are compared by speed")
    if published:
        curve, quantity = find_curve(published[0]), by or EFFICIENCY
        others = [run for run in runs if run not in published]
        if quantity not in (EFFICIENCY, SPEED):
            raise explain_unknown("quantity", quantity, (EFFICIENCY, SPEED), "--by")
        if len(others) != 1:
            raise InputError(
                f"{published[0]}: valid together with one run, as in: trainscale compare {published[0]} DIR"
            )
        sides = _select(read_sides(others[0], on_damage)[1], series)
        if len(sides) > 1:
            problem = f"{published[0]}: {sides[0].source} has several series; name one with --series"
            raise InputError(f"{problem}{list_titles(sides, 'its series: ')}")
        return compare_pairs([compare_with_published(curve, sides[0], quantity)], despite, gate, devices)

    path_a, all_a = read_sides(runs[0], on_damage)
    path_b, all_b = read_sides(runs[1], on_damage) if len(runs) > 1 else (path_a, all_a)
    if len(runs) == 1 and len(series) < 2:
        raise InputError(
            "one run was given; valid: two runs, or one and two of its series (--series)"
            f"{list_titles(all_a, 'its series: ')}"
        )
    all_a, all_b = _select(all_a, series[:1]), _select(all_b, series[-1:])
    if path_a.resolve() == path_b.resolve() and {side.config for side in all_a} & {side.config for side in all_b}:
        titles = list_titles(read_sides(path_a, on_damage)[1], "its series: ")
        raise InputError(
            f"A and B have the same series of {runs[0]}; valid: two runs, or two series of one run{titles}"
        )
    return compare_pairs(match_sides(all_a, all_b, despite), despite, gate, devices)


def _select(sides: list[Side], names: Sequence[str]) -> list[Side]:
    return [select_series(sides, name) for name in names] or sides


def make_gate(threshold: float | str | None, at_least: float | str | None) -> Gate | None:
    """Make the gate of --threshold or --at-least. None if neither is given."""
    if threshold is not None:
        loss = _read_share(threshold, "--threshold")
        if not 0 < loss < 1:
            raise InputError(f"--threshold {threshold}: valid: more than 0 and less than 100%, such as 2%")
        return Gate(THRESHOLD, 1 - loss)
    if at_least is not None:
        share = _read_share(at_least, "--at-least")
        if not 0 < share <= 10:
            raise InputError(f"--at-least {at_least}: valid: more than 0 and at most 1000%, such as 95%")
        return Gate(AT_LEAST, share)
    return None


def _read_share(value: float | str, flag: str) -> float:
    """Read ``95%`` or ``0.95``."""
    if not isinstance(value, str):
        return float(value)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*", value)
    if match is None:
        raise InputError(f"{flag} {value}: this is not a share; valid: such as 2% or 0.02")
    return float(match[1]) / (100 if match[2] else 1)


# ---- pairs of series


@dataclass(frozen=True)
class _Rule:
    confidence: float
    margin: float
    gate: Gate | None


def compare_pairs(
    pairs: Sequence[Pair],
    despite: Collection[str] = (),
    gate: Gate | None = None,
    devices: Collection[int] | None = None,
) -> RunComparison:
    """Compare series with their counterparts. ``devices`` are the counts to look at, None means all.

    An InputError says what differs, or that no point has a result on both sides.
    """
    allowed = [check_sides(a, b, despite) for a, b in pairs]
    measured = [count for a, b in pairs for count in list_common_devices(a, b) if a.values[count] and b.values[count]]
    looked_at = sum(1 for count in measured if devices is None or count in devices)
    if not looked_at and devices is not None and measured:
        wanted, valid = (", ".join(map(str, sorted(set(counts)))) for counts in (devices, measured))
        raise InputError(f"--devices {wanted}: not measured in both; valid: {valid}")
    if not looked_at:
        raise InputError("no device count has a result in both A and B, so there is nothing to compare")
    margin = round(1 - gate.bound, 12) if gate and gate.kind == THRESHOLD else DEFAULT_MARGIN
    rule = _Rule(1 - (1 - CONFIDENCE) / looked_at, margin, gate)
    curves = []
    for (a, b), differences in zip(pairs, allowed, strict=True):
        both, only_a, only_b = (
            tuple(sorted(count for count in counts if devices is None or count in devices))
            for counts in (list_common_devices(a, b), a.points.keys() - b.points, b.points.keys() - a.points)
        )
        points = tuple(_compare_point(a, b, count, rule) for count in both)
        ratios = [point.ratio for point in points if point.ratio]
        ends = [end for interval in ratios for end in (interval.low, interval.high) if end is not None]
        within = max((abs(end - 1) for end in ends), default=None)
        verdict = combine_verdicts(point.verdict for point in points if point.ratio)
        curves.append(Curve(a, b, points, verdict, within, differences, only_a, only_b))
    outcome = None
    if gate:  # a point that B has not measured has not passed
        outcomes = {point.outcome for curve in curves for point in curve.points}
        is_unknown = UNKNOWN in outcomes or any(curve.only_a for curve in curves)
        outcome = FAIL if FAIL in outcomes else UNKNOWN if is_unknown else PASS
    return RunComparison(
        verdict=combine_verdicts(curve.verdict for curve in curves),
        outcome=outcome,
        curves=tuple(curves),
        confidence=rule.confidence,
        margin=margin,
        gate=gate,
    )


def combine_verdicts(verdicts: Iterable[str]) -> str:
    """Return one verdict for many. A difference that was shown counts more than what is unknown elsewhere."""
    all_verdicts = set(verdicts)
    if MIXED in all_verdicts or {FASTER, SLOWER} <= all_verdicts:
        return MIXED
    if all_verdicts == {SAME}:
        return SAME
    return next((verdict for verdict in (SLOWER, FASTER) if verdict in all_verdicts), UNKNOWN)


def _compare_point(a: Side, b: Side, devices: int, rule: _Rule) -> ComparisonPoint:
    ours, theirs, gate = a.values[devices], b.values[devices], rule.gate
    if ours is None or theirs is None:
        outcome = FAIL if gate and ours else None
        return ComparisonPoint(
            series=b.title, devices=devices, ratio=None, verdict=UNKNOWN, outcome=outcome, a=ours, b=theirs
        )
    interval = ratio([theirs], [ours], rule.confidence)
    undisturbed = interval
    if interval.low is not None and interval.high is not None:  # all values that it may have had on idle machines
        lost_a, lost_b = a.estimate_lost_share(devices), b.estimate_lost_share(devices)
        high = interval.high / (1 - lost_b) if lost_b < 1 else math.inf
        undisturbed = Interval(interval.mean, interval.low * (1 - lost_a) * (1 - b.baseline_lost), high)
    verdict, outcome = _decide_verdict(undisturbed, rule.margin), _decide_outcome(undisturbed, gate)
    is_hidden = (verdict, outcome) != (_decide_verdict(interval, rule.margin), _decide_outcome(interval, gate))
    for_verdict = for_gate = None
    if verdict == UNKNOWN and not is_hidden:
        # Either 1 must lie outside, or all of the interval within the margin, whichever needs fewer repeats.
        difference = abs(math.log(interval.mean))
        reach = max(difference, math.log1p(rule.margin) - difference)
        for_verdict = count_repeats(ours, theirs, reach, rule.confidence)
    if gate and outcome == UNKNOWN and not is_hidden:
        for_gate = count_repeats(ours, theirs, abs(math.log(interval.mean / gate.bound)), rule.confidence)
    return ComparisonPoint(
        series=b.title,
        devices=devices,
        ratio=interval,
        verdict=verdict,
        outcome=outcome,
        efficiency_ratio=_compare_efficiency(a, b, devices, rule.confidence),
        a=ours,
        b=theirs,
        repeats_for_verdict=for_verdict,
        repeats_for_gate=for_gate,
        is_hidden=is_hidden,
    )


def _compare_efficiency(a: Side, b: Side, devices: int, confidence: float) -> Interval | None:
    """Return B/A of the efficiency, where both have their 1-device point."""
    parts = [side.values.get(count) for side, count in ((b, devices), (a, 1), (a, devices), (b, 1))]
    known = [part for part in parts if part is not None and part.repeats is not None]
    return ratio(known[:2], known[2:], confidence) if len(known) == len(parts) and devices > 1 else None


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
