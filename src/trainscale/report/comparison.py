"""A comparison of two runs for people: the verdict as a sentence, a table for each curve, and notes.

The terminal, Markdown and comparison_json.py use the same sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..analyse.comparison.compare import (
    AT_LEAST,
    FAIL,
    FASTER,
    MIXED,
    PASS,
    SAME,
    SLOWER,
    UNKNOWN,
    ComparedPoint,
    Comparison,
    Curve,
)
from ..analyse.comparison.sides import EFFICIENCY, Side
from ..analyse.estimates import MOST_REPEATS
from ..analyse.series import Interval
from ..analyse.statistics import CONFIDENCE, LEAST_REPEATS
from . import numbers, wording
from .comparison_numbers import (
    PERCENT,
    choose_verdict_word,
    format_device_counts,
    format_percentage,
    format_ratio,
    format_ratio_columns,
    format_share,
    format_value,
    join_counts,
)
from .grid import Grid, escape, render_markdown

_OUTCOMES = {PASS: "pass", FAIL: "FAIL", UNKNOWN: "cannot tell"}
NOT_ENOUGH = "not enough repeats to tell"
BUSY = "cannot tell, because the machine was busy"


def make_headline(comparison: Comparison) -> str:
    """Return the verdict on all curves in a few words: ``slower``, ``same within ±1.3 %``."""
    return _describe_verdict(comparison.verdict, comparison.curves)


def describe_curve(curve: Curve, margin: float) -> str:
    """Return the verdict on a curve with its evidence."""
    measured = [point for point in curve.points if point.ratio]
    text = _describe_verdict(curve.verdict, [curve])
    if curve.verdict in (FASTER, SLOWER, MIXED):
        shown = [point for point in measured if point.verdict in (FASTER, SLOWER)]
        evidence = "; ".join(
            f"{_format_change(point, curve)} at {wording.format_device_count(point.devices)}" for point in shown
        )
        open_points = [point for point in measured if point.verdict == UNKNOWN]
        rest = f"; cannot tell at {format_device_counts(open_points)}" if open_points else ""
        return f"{text}: {evidence}{rest}"
    if curve.verdict == SAME:
        return f"{text} at {format_device_counts(measured)}"
    return f"{text}: {_describe_missing(measured, margin)}"


def describe_gate(comparison: Comparison) -> str:
    """Return what came out of --threshold or --at-least. Empty without one."""
    gate = comparison.gate
    if gate is None:
        return ""
    accepts, bound, change = gate.kind == AT_LEAST, format_share(gate.bound), format_share(comparison.margin)
    if comparison.curves[0].b.has_efficiencies:
        bound, change = f"{bound} of the efficiency", f"{change} of the efficiency"
    if comparison.outcome == PASS:
        demand = f"B has at least {bound} of A" if accepts else f"no regression beyond {change}"
        return f"pass: {demand} at {format_device_counts([point for point in comparison.points if point.ratio])}"
    if comparison.outcome == FAIL:
        below = [point for point in comparison.points if point.outcome == FAIL and point.ratio]
        evidence = [
            f"B/A is {format_ratio(point.ratio)} at {wording.format_device_count(point.devices)}" for point in below
        ]
        evidence += [_describe_loss(point) for point in comparison.points if point.is_lost]
        return f"{f'fail: below {bound} of A' if accepts else f'regression beyond {change}'}: {'; '.join(evidence)}"
    demand = f"B has at least {bound} of A" if accepts else f"B has a regression beyond {change}"
    return f"cannot tell whether {demand}: {_describe_gate_gaps(comparison)}"


def make_curve_grid(curve: Curve, comparison: Comparison) -> Grid:
    """Return the table of a curve. Columns without any value are left out. A gate's outcome replaces the verdict."""
    verdict = "gate" if comparison.gate else "verdict"
    unit = EFFICIENCY if curve.b.has_efficiencies else f"{curve.b.unit}/s"
    header = [
        "devices",
        f"A {unit}",
        f"B {unit}",
        "repeats",
        "B/A",
        "interval",
        verdict,
        "efficiency B/A",
        "interval",
    ]
    rows = [_format_row(point, curve, bool(comparison.gate)) for point in curve.points]
    kept = [index for index in range(len(header)) if any(row[index] not in ("", numbers.MISSING) for row in rows)]
    cells = tuple(tuple(row[index] for index in kept) for row in rows)
    return Grid(curve.b.title, tuple(header[index] for index in kept), cells, left=())


def explain_intervals(comparison: Comparison) -> str:
    """Return what the intervals in the tables are."""
    count = sum(1 for point in comparison.points if point.ratio)
    if not any(point.ratio and point.ratio.low is not None for point in comparison.points):
        return f"There are no intervals, which need {LEAST_REPEATS} repeats on each side."
    quantities = "efficiencies" if comparison.curves[0].b.has_efficiencies else "speeds"
    together = (
        "" if count == 1 else f" for all {count} points together ({comparison.confidence * 100:.4g}{PERCENT} for each)"
    )
    return (
        f"B/A is the ratio of the {quantities} with its {format_share(CONFIDENCE)} interval{together}."
        f" Same means within ±{format_share(comparison.margin)}."
    )


def list_notes(comparison: Comparison) -> list[str]:
    """Return what else a reader should know, one sentence each."""
    lines = [line for curve in comparison.curves for line in _list_curve_notes(curve, comparison.outcome)]
    return list(dict.fromkeys(lines))


def _list_curve_notes(curve: Curve, outcome: str | None) -> Iterator[str]:
    a, b = curve.a, curve.b
    for difference in curve.differences:
        yield f"A and B differ in {difference.field}: {difference.a} and {difference.b} (--despite)"
    if a.citation:
        yield (
            f"A is published ({a.citation}): it has no interval, so its figures are taken as exact, and nothing proves"
            " that its network is the same"
        )
    elif a.is_exact:
        yield "A is a number: it is not known how it was measured"
    elif a.host_names and b.host_names and a.host_names != b.host_names:
        yield "A and B were measured on different hosts of the same kind, which adds to the difference"
    claims = outcome == FAIL or curve.verdict in (FASTER, SLOWER, MIXED)
    if claims and not a.citation and a.source != b.source and min(a.sessions, b.sessions) == 1:
        yield (
            "a drift of the machine between the two runs would look the same; runs of A and B in turns, in two folders,"
            " would tell"
        )
    for name, side in (("A", a), ("B", b)):
        if any(point.speed and point.speed.is_sequential for point in side.points.values()):
            yield f"the results of {side.source} decided how often it was repeated, so its intervals are wider"
        disturbed = [point.disturbance for point in side.points.values() if point.disturbance]
        if disturbed:
            yield f"{name}: {disturbed[0]}"
    for name, counts in (("A", curve.only_a), ("B", () if a.is_exact else curve.only_b)):
        if counts:
            yield f"only {name} has measured {join_counts(counts)} of {b.title}"
    yield from (_describe_loss(point) for point in curve.points if point.is_lost)


def describe_side(side: Side) -> str:
    """Return source, title and date."""
    if side.is_exact:
        return f"{side.source} · {side.title}" if side.citation else side.source
    date = side.date[:16].replace("T", " ")
    return " · ".join(part for part in (side.source, side.title, date) if part)


def render_comparison_md(comparison: Comparison) -> str:
    """Return the comparison for a pull request."""
    return "\n".join(_render_blocks(comparison)) + "\n"


def _render_blocks(comparison: Comparison) -> Iterator[str]:
    yield f"### trainscale compare: {escape(make_headline(comparison))}\n"
    if comparison.gate:
        yield f"**{escape(describe_gate(comparison))}**\n"
    for curve in comparison.curves:
        yield f"- A: {escape(describe_side(curve.a))}\n- B: {escape(describe_side(curve.b))}\n"
        yield escape(describe_curve(curve, comparison.margin)) + "\n"
        yield render_markdown(make_curve_grid(curve, comparison))
    yield escape(explain_intervals(comparison))
    all_notes = list_notes(comparison)
    if all_notes:
        yield ""
        yield from (f"- {escape(note)}" for note in all_notes)


def _describe_verdict(verdict: str, curves: Sequence[Curve]) -> str:
    within = [curve.within for curve in curves]
    reaches = [reach for reach in within if reach is not None]
    if verdict == SAME and reaches:
        tenths = math.ceil(max(reaches) * 1000 - 1e-9)  # of a percent, rounded up so that it holds
        return f"same within ±{format_share(tenths / 1000)}"
    if verdict == MIXED:
        faster, slower = (choose_verdict_word(word, curves[0].b) for word in (FASTER, SLOWER))
        return f"mixed: {faster} at some points, {slower} at others"
    if verdict == UNKNOWN:
        return BUSY if any(point.is_hidden for curve in curves for point in curve.points) else NOT_ENOUGH
    return choose_verdict_word(verdict, curves[0].b)


def _format_row(point: ComparedPoint, curve: Curve, has_gate: bool) -> list[str]:
    verdict = choose_verdict_word(point.verdict, curve.b) if point.ratio else f"{'B' if point.a.speed else 'A'} failed"
    return [
        numbers.format_integer(point.devices),
        *(format_value(side, curve.b) for side in (point.a, point.b)),
        _format_repeats(point),
        *format_ratio_columns(point.ratio),
        _OUTCOMES[point.outcome] if has_gate and point.outcome else verdict,
        *format_ratio_columns(point.efficiency_ratio),
    ]


def _format_repeats(point: ComparedPoint) -> str:
    counts = [side.speed.repeats if side.speed else 0 for side in (point.a, point.b)]
    return ", ".join("exact" if count is None else str(count) for count in counts)


def _format_change(point: ComparedPoint, curve: Curve) -> str:
    """Format how much faster or slower B is: 3.2 % (2.1–4.3 %), with the verdict where that of the curve is mixed."""
    interval = point.ratio or Interval(1.0)
    ends = sorted(abs(end - 1) for end in (interval.low, interval.high) if end is not None)
    verdict = f" {choose_verdict_word(point.verdict, curve.b)}" if curve.verdict == MIXED else ""
    return f"{format_share(abs(interval.mean - 1))} ({'–'.join(map(format_percentage, ends))}{PERCENT}){verdict}"


def _describe_missing(points: Sequence[ComparedPoint], margin: float) -> str:
    unknown = [point for point in points if point.verdict == UNKNOWN]
    if hidden := [point for point in unknown if point.is_hidden]:
        return _explain_busy_machine(hidden)
    needed = [point.repeats_for_verdict for point in unknown]
    if single := _find_without_interval(unknown):
        return f"{_explain_too_few_repeats(single)}; {_describe_needed_repeats(needed, has_intervals=False)}"
    widest = max(unknown, key=lambda point: (point.ratio and point.ratio.relative) or 0.0)
    return (
        f"at {wording.format_device_count(widest.devices)} B/A is {format_ratio(widest.ratio)}, which is neither a"
        f" difference nor within ±{format_share(margin)}; {_describe_needed_repeats(needed, has_intervals=True)}"
    )


def _describe_gate_gaps(comparison: Comparison) -> str:
    unknown = [point for point in comparison.points if point.outcome == UNKNOWN]
    parts = []
    hidden = [point for point in unknown if point.is_hidden]
    if hidden:
        parts.append(_explain_busy_machine(hidden))
    elif unknown:
        single = _find_without_interval(unknown)
        parts.append(_explain_too_few_repeats(single) if single else f"undecided at {format_device_counts(unknown)}")
        parts.append(_describe_needed_repeats([point.repeats_for_gate for point in unknown], has_intervals=not single))
    if comparison.unmeasured:
        parts.append(f"B has not measured {join_counts(comparison.unmeasured)}")
    return "; ".join(parts)


def _find_without_interval(points: Sequence[ComparedPoint]) -> list[ComparedPoint]:
    return [point for point in points if point.ratio and point.ratio.low is None]


def _explain_too_few_repeats(points: Sequence[ComparedPoint]) -> str:
    return f"fewer than {LEAST_REPEATS} repeats on a side at {format_device_counts(points)}, so there is no interval"


def _explain_busy_machine(points: Sequence[ComparedPoint]) -> str:
    ratios = f"B/A is {format_ratio(points[0].ratio)} at {wording.format_device_count(points[0].devices)}"
    return (
        f"{ratios}, but other programs used the machine meanwhile, which may explain it; measure on an idle machine, or"
        " runs of A and B in turns, in two folders"
    )


def _describe_needed_repeats(counts: Sequence[int | None], has_intervals: bool) -> str:
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        return f"about {max(known)} repeats on each side would decide it"
    if not has_intervals:
        return f"{LEAST_REPEATS} repeats on each side would show how many decide it"
    return f"more than {MOST_REPEATS} repeats on each side would be needed"


def _describe_loss(point: ComparedPoint) -> str:
    reason = f": {point.b.reason}" if point.b.reason else ""
    return f"B has no result at {wording.format_device_count(point.devices)} ({point.b.status}{reason}), where A has"
