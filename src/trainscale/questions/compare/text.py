"""A comparison in words: verdicts, tables and notes for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ...analyse.statistics import CONFIDENCE, LEAST_REPEATS, MOST_REPEATS, Interval
from ...report import numbers, wording
from ...report.table import Grid, TerminalGrid, escape
from ...report.table import render_markdown as render_grid_markdown
from ...worker.type_aliases import JsonObject
from ..documents import load_template, pick, split_paragraphs
from ..documents import render_json as encode_json
from .compare import (
    AT_LEAST,
    FAIL,
    FASTER,
    MIXED,
    PASS,
    SAME,
    SLOWER,
    UNKNOWN,
    ComparisonPoint,
    Curve,
    RunComparison,
)
from .sides import EFFICIENCY, Side

# Schema history
#     1  first version
SCHEMA = 1
_PERCENT = f"{numbers.THIN}%"
_OUTCOMES = {PASS: "pass", FAIL: "FAIL", UNKNOWN: "cannot tell"}
_OF_SPEEDS = {FASTER: "faster", SLOWER: "slower", SAME: "same", UNKNOWN: "cannot tell"}
_OF_EFFICIENCIES = {**_OF_SPEEDS, FASTER: "higher", SLOWER: "lower"}


# ---- sentences


def make_headline(comparison: RunComparison) -> str:
    """Return the verdict on all curves in a few words: ``slower``, ``same within ±1.3 %``."""
    return _describe_verdict(comparison.verdict, comparison.curves)


def describe_curve(curve: Curve, margin: float) -> str:
    measured = [point for point in curve.points if point.ratio]
    unknown = [point for point in measured if point.verdict == UNKNOWN]
    if not measured:
        return "nothing to compare: no device count has a result in both A and B"
    text = _describe_verdict(curve.verdict, [curve])
    if curve.verdict == SAME:
        return f"{text} at {_join_devices(measured)}"
    if curve.verdict == UNKNOWN:
        widest = max(unknown, key=lambda point: (point.ratio and point.ratio.relative) or 0.0)
        undecided = (
            f"at {wording.format_device_count(widest.devices)} B/A is {_format_ratio(widest.ratio)}, which is neither a"
            f" difference nor within ±{_format_share(margin)}"
        )
        return f"{text}: {_explain_unknown(unknown, undecided, [point.repeats_for_verdict for point in unknown])}"
    changes = []  # how much faster or slower B is: 3.2 % (2.1–4.3 %) at 2 devices
    for point in measured:
        if point.ratio and point.verdict in (FASTER, SLOWER):
            ends = sorted(abs(end - 1) for end in (point.ratio.low, point.ratio.high) if end is not None)
            verdict = f" {_name_verdict(point.verdict, curve)}" if curve.verdict == MIXED else ""
            changes.append(
                f"{_format_share(abs(point.ratio.mean - 1))} ({'–'.join(map(_format_percentage, ends))}{_PERCENT})"
                f"{verdict} at {wording.format_device_count(point.devices)}"
            )
    rest = f"; cannot tell at {_join_devices(unknown)}" if unknown else ""
    return f"{text}: {'; '.join(changes)}{rest}"


def describe_gate(comparison: RunComparison) -> str:
    gate, points = comparison.gate, comparison.points
    if gate is None:
        return ""
    of_what = " of the efficiency" if comparison.curves[0].b.has_efficiencies else ""
    share, change = f"{_format_share(gate.bound)}{of_what}", f"{_format_share(comparison.margin)}{of_what}"
    accepts = gate.kind == AT_LEAST
    if comparison.outcome == PASS:
        demand = f"B has at least {share} of A" if accepts else f"no regression beyond {change}"
        return f"pass: {demand} at {_join_devices([point for point in points if point.ratio])}"
    if comparison.outcome == FAIL:
        evidence = [
            f"B/A is {_format_ratio(point.ratio)} at {wording.format_device_count(point.devices)}"
            for point in points
            if point.outcome == FAIL and point.ratio
        ]
        evidence += [loss for curve in comparison.curves for loss in _list_losses(curve)]
        return f"{f'fail: below {share} of A' if accepts else f'regression beyond {change}'}: {'; '.join(evidence)}"
    unknown = [point for point in points if point.outcome == UNKNOWN]
    reasons = []
    if unknown:
        needed = [point.repeats_for_gate for point in unknown]
        reasons.append(_explain_unknown(unknown, f"undecided at {_join_devices(unknown)}", needed))
    if unmeasured := sorted({count for curve in comparison.curves for count in curve.only_a}):
        reasons.append(f"B has not measured {_join_counts(unmeasured)}")
    demand = f"B has at least {share} of A" if accepts else f"B has a regression beyond {change}"
    return f"cannot tell whether {demand}: {'; '.join(reasons)}"


def _explain_unknown(points: Sequence[ComparisonPoint], undecided: str, needed: Sequence[int | None]) -> str:
    """Return why points are undecided, and how many repeats on each side would decide them."""
    if hidden := next((point for point in points if point.is_hidden), None):
        where = wording.format_device_count(hidden.devices)
        reason = "but other programs used the machine meanwhile, which may explain it"
        return f"B/A is {_format_ratio(hidden.ratio)} at {where}, {reason}"
    if single := [point for point in points if point.ratio and point.ratio.low is None]:
        undecided = f"fewer than {LEAST_REPEATS} repeats on a side at {_join_devices(single)}, so there is no interval"
    known = [count for count in needed if count is not None]
    if len(known) == len(needed):
        return f"{undecided}; about {max(known)} repeats on each side would decide it"
    if single:
        return f"{undecided}; {LEAST_REPEATS} repeats on each side would show how many decide it"
    return f"{undecided}; more than {MOST_REPEATS} repeats on each side would be needed"


def explain_intervals(comparison: RunComparison) -> str:
    ratios = [point.ratio for point in comparison.points if point.ratio]
    if not any(ratio.low is not None for ratio in ratios):
        return f"There are no intervals, which need {LEAST_REPEATS} repeats on each side."
    quantities = "efficiencies" if comparison.curves[0].b.has_efficiencies else "speeds"
    each = f"{comparison.confidence * 100:.4g}{_PERCENT} for each"
    together = "" if len(ratios) == 1 else f" for all {len(ratios)} points together ({each})"
    return (
        f"B/A is the ratio of the {quantities} with its {_format_share(CONFIDENCE)} interval{together}."
        f" Same means within ±{_format_share(comparison.margin)}."
    )


def list_notes(comparison: RunComparison) -> list[str]:
    template = load_template(__package__, "notes.j2")
    context = {"comparison": comparison, "join_counts": _join_counts, "list_losses": _list_losses}
    return list(dict.fromkeys(split_paragraphs(template.render(context))))


def describe_side(side: Side) -> str:
    date = side.date[:16].replace("T", " ")
    return " · ".join(part for part in (side.source, side.title, date) if part)


def _describe_verdict(verdict: str, curves: Sequence[Curve]) -> str:
    reaches = [curve.within for curve in curves if curve.within is not None]
    if verdict == SAME and reaches:
        tenths = math.ceil(max(reaches) * 1000 - 1e-9)  # of a percent, rounded up so that it holds
        return f"same within ±{_format_share(tenths / 1000)}"
    if verdict == MIXED:
        faster, slower = (_name_verdict(word, curves[0]) for word in (FASTER, SLOWER))
        return f"mixed: {faster} at some points, {slower} at others"
    if verdict == UNKNOWN:
        is_busy = any(point.is_hidden for curve in curves for point in curve.points)
        return "cannot tell, because the machine was busy" if is_busy else "not enough repeats to tell"
    return _name_verdict(verdict, curves[0])


def _name_verdict(verdict: str, curve: Curve) -> str:
    return (_OF_EFFICIENCIES if curve.b.has_efficiencies else _OF_SPEEDS)[verdict]


def _list_losses(curve: Curve) -> list[str]:
    losses = []
    for point in curve.points:
        if point.is_lost:
            lost = curve.b.points[point.devices]
            reason = f"{lost.status}: {lost.reason}" if lost.reason else lost.status
            where = wording.format_device_count(point.devices)
            losses.append(f"B has no result at {where} ({reason}), where A has")
    return losses


# ---- numbers


def _format_ratio(interval: Interval | None) -> str:
    mean, limits = _format_ratio_columns(interval)
    return f"{mean} ({limits})" if limits else mean


def _format_ratio_columns(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return numbers.MISSING, ""
    return f"{interval.mean:.3f}", "" if interval.low is None else f"{interval.low:.3f}–{interval.high:.3f}"


def _join_devices(points: Sequence[ComparisonPoint]) -> str:
    return _join_counts(list(dict.fromkeys(point.devices for point in points)))


def _join_counts(counts: Sequence[int]) -> str:
    return wording.join_names(map(str, counts)) + (" device" if list(counts) == [1] else " devices")


def _format_share(share: float) -> str:
    return f"{_format_percentage(share)}{_PERCENT}"


def _format_percentage(share: float) -> str:
    percent = share * 100
    return f"{percent:.2g}" if percent < 10 else f"{percent:.3g}"


# ---- documents


def make_curve_grid(curve: Curve, comparison: RunComparison) -> Grid:
    """Return the table of a curve. A gate's outcome replaces the verdict."""
    unit = EFFICIENCY if curve.b.has_efficiencies else f"{curve.b.unit}/s"
    verdict = "gate" if comparison.gate else "verdict"
    header = ("devices", f"A {unit}", f"B {unit}", "repeats", "B/A", "interval", verdict, "efficiency B/A", "interval")
    rows = []
    for point in curve.points:
        values, repeats = [], []
        for value in (point.a, point.b):
            is_share = value is not None and curve.b.has_efficiencies
            rate = numbers.format_number(value.mean if value else None)
            values.append(f"{value.mean * 100:.1f}{_PERCENT}" if value and is_share else rate)
            repeats.append("0" if value is None else "exact" if value.repeats is None else str(value.repeats))
        word = _name_verdict(point.verdict, curve) if point.ratio else f"{'B' if point.a else 'A'} failed"
        rows.append(
            (
                numbers.format_integer(point.devices),
                *values,
                ", ".join(repeats),
                *_format_ratio_columns(point.ratio),
                _OUTCOMES[point.outcome] if point.outcome else word,
                *_format_ratio_columns(point.efficiency_ratio),
            )
        )
    return Grid(curve.b.title, header, tuple(rows), left=()).drop_empty_columns()


def print_text(comparison: RunComparison) -> None:
    from rich.console import Console

    console = Console()

    def show(text: str, style: str = "") -> None:
        # rich would break lines between a number and its unit.
        lines = [textwrap.fill(line, console.width, break_on_hyphens=False) for line in text.split("\n")]
        console.print("\n".join(lines), style=style, soft_wrap=True, highlight=False, markup=False)

    for curve in comparison.curves:
        show(f"A  {describe_side(curve.a)}")
        show(f"B  {describe_side(curve.b)}\n")
        console.print(TerminalGrid(make_curve_grid(curve, comparison)), highlight=False)
        show(describe_curve(curve, comparison.margin) + "\n", "bold")
    show(explain_intervals(comparison), "dim")
    for note in list_notes(comparison):
        show(f"note: {note}")
    if len(comparison.curves) > 1:
        show(f"\nall curves: {make_headline(comparison)}", "bold")
    if comparison.gate:
        show(f"\n{describe_gate(comparison)}", "bold")


def render_markdown(comparison: RunComparison) -> str:
    blocks = [f"### trainscale compare: {escape(make_headline(comparison))}\n"]
    if comparison.gate:
        blocks.append(f"**{escape(describe_gate(comparison))}**\n")
    for curve in comparison.curves:
        blocks.append(f"- A: {escape(describe_side(curve.a))}\n- B: {escape(describe_side(curve.b))}\n")
        blocks.append(escape(describe_curve(curve, comparison.margin)) + "\n")
        blocks.append(render_grid_markdown(make_curve_grid(curve, comparison)))
    blocks.append(escape(explain_intervals(comparison)))
    if notes := list_notes(comparison):
        blocks += ["", *(f"- {escape(note)}" for note in notes)]
    return "\n".join(blocks) + "\n"


def render_json(comparison: RunComparison, exit_code: int) -> str:
    gate = comparison.gate
    of_gate = {"outcome": comparison.outcome, "sentence": describe_gate(comparison)}
    document = {
        "schema": SCHEMA,
        **pick(comparison, "verdict margin"),
        "headline": make_headline(comparison),
        "confidence": CONFIDENCE,
        "confidence_per_point": comparison.confidence,
        "gate": {**pick(gate, "kind bound"), **of_gate} if gate else None,
        "exit_code": exit_code,
        "curves": [_encode_curve(curve, comparison.margin) for curve in comparison.curves],
        "notes": list_notes(comparison),
    }
    return encode_json(document)


def _encode_curve(curve: Curve, margin: float) -> JsonObject:
    sides: JsonObject = {}
    for name, side in (("a", curve.a), ("b", curve.b)):
        sides[name] = {**pick(side, "source title"), "date": side.date or None}
        if side.citation:
            sides[name]["citation"] = side.citation
    points = []
    for point in curve.points:
        names = "devices ratio efficiency_ratio verdict outcome repeats_for_verdict repeats_for_gate"
        encoded = pick(point, names)
        for name, side, value in (("a", curve.a, point.a), ("b", curve.b, point.b)):
            encoded[name] = {
                **pick(side.points[point.devices], "hosts status"),
                "efficiency" if side.has_efficiencies else "per_second": value.mean if value else None,
                "repeats": value.repeats if value else 0,
            }
        points.append(encoded)
    return {
        **sides,
        **pick(curve.b, "unit quantity"),
        **pick(curve, "verdict within only_a only_b"),
        "sentence": describe_curve(curve, margin),
        "differences": [pick(difference, "name field a b") for difference in curve.differences],
        "points": points,
    }
