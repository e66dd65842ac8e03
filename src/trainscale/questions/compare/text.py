"""A comparison in words, as text, Markdown and JSON."""

import math
import textwrap
from collections.abc import Iterable, Sequence

from ...analyse.statistics import CONFIDENCE, LEAST_REPEATS, MOST_REPEATS, Interval
from ...report import numbers, wording
from ...report.documents import Grid, encode_json, escape, join_lines, load_template, pick, split_paragraphs
from ...worker.type_aliases import JsonObject
from .compare import FAIL, FASTER, PASS, SAME, SLOWER, UNKNOWN, Curve, RunComparison
from .sides import EFFICIENCY, Side

# Schema history
#     1  first version
SCHEMA = 1
_PERCENT = f"{numbers.THIN}%"
_OUTCOMES = {PASS: "pass", FAIL: "FAIL", UNKNOWN: "cannot tell"}
_OF_SPEEDS = {FASTER: "faster", SLOWER: "slower", SAME: "same", UNKNOWN: "cannot tell"}
_OF_EFFICIENCIES = {**_OF_SPEEDS, FASTER: "higher", SLOWER: "lower"}


# ---- numbers


def _format_ratio(interval: Interval) -> str:
    mean, limits = _format_ratio_columns(interval)
    return f"{mean} ({limits})" if limits else mean


def _format_ratio_columns(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return numbers.MISSING, ""
    return f"{interval.mean:.3f}", "" if interval.low is None else f"{interval.low:.3f}–{interval.high:.3f}"


def _join_devices(counts: Iterable[int]) -> str:
    names = list(map(numbers.format_integer, dict.fromkeys(counts)))
    return f"{wording.join_names(names)} device{'' if names == ['1'] else 's'}"


def _format_share(share: float) -> str:
    return f"{_format_percentage(share)}{_PERCENT}"


def _format_percentage(share: float) -> str:
    percent = share * 100
    return f"{percent:.2g}" if percent < 10 else f"{percent:.3g}"


def _format_change_limits(ratio: Interval) -> str:
    """Format how much faster or slower B is: 2.1–4.3 %."""
    ends = sorted(abs(end - 1) for end in (ratio.low, ratio.high) if end is not None)
    return f"{'–'.join(map(_format_percentage, ends))}{_PERCENT}"


def _format_reach(curves: Sequence[Curve]) -> str:
    reach = max(curve.within for curve in curves if curve.within is not None)
    return _format_share(math.ceil(reach * 1000 - 1e-9) / 1000)


# ---- sentences


def describe_side(side: Side) -> str:
    date = side.date[:16].replace("T", " ")
    return " · ".join(part for part in (side.source, side.title, date) if part)


def _name_verdict(verdict: str, curve: Curve) -> str:
    return (_OF_EFFICIENCIES if curve.b.has_efficiencies else _OF_SPEEDS)[verdict]


def _list_losses(curve: Curve) -> list[str]:
    losses = []
    for point in curve.points:
        if point.is_lost:
            lost = curve.b.points[point.devices]
            reason = f"{lost.status}: {lost.reason}".removesuffix(": ")
            losses.append(f"B has no result at {_join_devices([point.devices])} ({reason}), where A has")
    return losses


_WORDS: dict[str, object] = {
    "devices": _join_devices,
    "find_widest": lambda points: max(points, key=lambda point: point.ratio.relative or 0.0),
    "least_repeats": LEAST_REPEATS,
    "limits": _format_change_limits,
    "list_losses": _list_losses,
    "most_repeats": MOST_REPEATS,
    "name": _name_verdict,
    "percent": _PERCENT,
    "ratio": _format_ratio,
    "reach": _format_reach,
    "share": _format_share,
}


def say(sentence: str, *about: object) -> str:
    """Return what a macro of templates/sentences.j2 says."""
    macros = load_template(__package__, "sentences.j2").make_module(_WORDS)
    return join_lines(getattr(macros, sentence)(*about))


def list_notes(comparison: RunComparison) -> list[str]:
    text = load_template(__package__, "notes.j2").render(comparison=comparison, **_WORDS)
    return list(dict.fromkeys(split_paragraphs(text)))


# ---- documents


def make_curve_grid(curve: Curve, comparison: RunComparison) -> Grid:
    """A gate's outcome replaces the verdict."""
    unit = EFFICIENCY if curve.b.has_efficiencies else f"{curve.b.unit}/s"
    verdict = "gate" if comparison.gate else "verdict"
    header = ("devices", f"A {unit}", f"B {unit}", "repeats", "B/A", "interval", verdict, "efficiency B/A", "interval")
    rows = []
    for point in curve.points:
        values, repeats = [], []
        for value in (point.a, point.b):
            is_share = value is not None and curve.b.has_efficiencies
            rate = numbers.format_mean(value)
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
        console.print(make_curve_grid(curve, comparison), highlight=False)
        show(say("describe_curve", curve, comparison.margin) + "\n", "bold")
    show(say("explain_intervals", comparison), "dim")
    for note in list_notes(comparison):
        show(f"note: {note}")
    if len(comparison.curves) > 1:
        show(f"\nall curves: {say('headline', comparison.verdict, comparison.curves)}", "bold")
    if comparison.gate:
        show(f"\n{say('describe_gate', comparison)}", "bold")


def render_markdown(comparison: RunComparison) -> str:
    blocks = [f"### trainscale compare: {escape(say('headline', comparison.verdict, comparison.curves))}\n"]
    if comparison.gate:
        blocks.append(f"**{escape(say('describe_gate', comparison))}**\n")
    for curve in comparison.curves:
        blocks.append(f"- A: {escape(describe_side(curve.a))}\n- B: {escape(describe_side(curve.b))}\n")
        blocks.append(escape(say("describe_curve", curve, comparison.margin)) + "\n")
        blocks.append(make_curve_grid(curve, comparison).to_markdown())
    blocks.append(escape(say("explain_intervals", comparison)))
    if notes := list_notes(comparison):
        blocks += ["", *(f"- {escape(note)}" for note in notes)]
    return "\n".join(blocks) + "\n"


def render_json(comparison: RunComparison, exit_code: int) -> str:
    curves = []
    for curve in comparison.curves:
        encoded: JsonObject = {}
        for name, side in (("a", curve.a), ("b", curve.b)):
            encoded[name] = {**pick(side, "source title"), "date": side.date or None}
            if side.citation:
                encoded[name]["citation"] = side.citation
        points = []
        for point in curve.points:
            names = "devices ratio efficiency_ratio verdict outcome repeats_for_verdict repeats_for_gate"
            points.append(pick(point, names))
            for name, side, value in (("a", curve.a, point.a), ("b", curve.b, point.b)):
                points[-1][name] = {
                    **pick(side.points[point.devices], "hosts status"),
                    "efficiency" if side.has_efficiencies else "per_second": value.mean if value else None,
                    "repeats": value.repeats if value else 0,
                }
        encoded |= {**pick(curve.b, "unit quantity"), **pick(curve, "verdict within only_a only_b")}
        encoded["sentence"] = say("describe_curve", curve, comparison.margin)
        encoded["differences"] = [pick(difference, "name field a b") for difference in curve.differences]
        curves.append({**encoded, "points": points})
    gate = None
    if comparison.gate:
        of_gate = {"outcome": comparison.outcome, "sentence": say("describe_gate", comparison)}
        gate = {**pick(comparison.gate, "kind bound"), **of_gate}
    document = {
        "schema": SCHEMA,
        **pick(comparison, "verdict margin"),
        "headline": say("headline", comparison.verdict, comparison.curves),
        "confidence": CONFIDENCE,
        "confidence_per_point": comparison.confidence,
        "gate": gate,
        "exit_code": exit_code,
        "curves": curves,
        "notes": list_notes(comparison),
    }
    return encode_json(document)
