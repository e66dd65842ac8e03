"""``trainscale compare A B``: whether B is faster or slower than A, and a gate for CI and for acceptance tests."""

from __future__ import annotations

import argparse
import re
import textwrap

from ..analyse.comparison.compare import (
    AT_LEAST,
    FAIL,
    PASS,
    THRESHOLD,
    Comparison,
    Gate,
    compare_pairs,
)
from ..analyse.comparison.differences import NAMES
from ..analyse.comparison.matching import match_sides
from ..analyse.comparison.sides import EFFICIENCY, SPEED
from ..errors import InputError, explain_unknown
from .compared_runs import REFERENCE_FORM, read_sides
from .parser import Parser

_CANNOT_TELL = 3  # the exit code of a gate that more repeats would decide


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    gate = make_gate(options.threshold, options.at_least)
    if options.strict and gate is None:
        raise InputError("--strict: valid together with --threshold or --at-least")
    despite = read_despite(options.despite)
    devices = _read_devices(options.devices)
    all_a, all_b = read_sides(options)
    comparison = compare_pairs(match_sides(all_a, all_b, despite), despite, gate, devices)
    code = choose_exit_code(comparison, options.strict)
    _show(comparison, options, code)
    return code


def choose_exit_code(comparison: Comparison, is_strict: bool) -> int:
    """Return 1 if the gate failed. Where it cannot tell, acceptance is not given, but a regression is not shown.

    Without a single interval no gate could ever fail, so that is an error of input.
    """
    if comparison.outcome == FAIL:
        return 1
    if not comparison.has_interval:
        return InputError.exit_code
    if comparison.gate is None or comparison.outcome == PASS:
        return 0
    return _CANNOT_TELL if is_strict or comparison.gate.kind == AT_LEAST else 0


def _make_parser() -> Parser:
    parser = Parser(
        "compare",
        "Compare two runs, or two series of one run, point by point: is B faster than A, slower, the same, or do"
        " these repeats not suffice to tell? Exit codes: 0 passed, 1 the gate failed, 2 not comparable, or"
        " nowhere three repeats on both sides, 3 the gate cannot tell.",
    )
    add = parser.add_argument
    add(
        "a",
        metavar="A",
        help="the reference: the directory of a run, a folder of runs, or a results.json; DIR:SERIES is one series;"
        " published:ID is a published curve, which is the reference wherever it stands",
    )
    add("b", nargs="?", metavar="B", help="what is judged; left out with --reference, or with two --series of one run")
    series = "compare only this series; give it twice to compare two series of one run"
    add("--series", action="append", metavar="TITLE", help=series)
    add("--devices", metavar="N,…", help="compare only these device counts (default: all that both have)")
    gates = parser.add_mutually_exclusive_group()
    gates.add_argument("--threshold", metavar="SHARE", help="exit code 1 on a regression beyond this, such as 2%%")
    gates.add_argument(
        "--at-least", metavar="SHARE", help="accept B if it reaches this share of A, such as 95%%: 0 yes, 1 no"
    )
    add("--strict", action="store_true", help="exit code 3 where --threshold cannot tell (default: 0)")
    add(
        "--reference",
        action="append",
        metavar="TEXT",
        help=f"compare with a number instead of A: {REFERENCE_FORM}; may be given for several device counts",
    )
    add(
        "--by",
        metavar="QUANTITY",
        help=f"what to compare with a published curve: {EFFICIENCY} (the default) or {SPEED}",
    )
    add("--despite", metavar="NAME,…", help=f"compare although these differ: {', '.join(NAMES)}")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON")
    formats.add_argument("--markdown", action="store_true", help="print Markdown, for a pull request")
    return parser


# ---- reading the command line


def make_gate(threshold: str | None, at_least: str | None) -> Gate | None:
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


def _read_share(text: str, flag: str) -> float:
    """Read ``95%`` or ``0.95``."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*", text)
    if match is None:
        raise InputError(f"{flag} {text}: this is not a share; valid: such as 2% or 0.02")
    return float(match[1]) / (100 if match[2] else 1)


def read_despite(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if name not in NAMES:
            raise explain_unknown("name", name, NAMES, "--despite")
    return names


def _read_devices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    counts = [part.strip() for part in text.split(",") if part.strip()]
    if not counts or not all(count.isascii() and count.isdigit() and int(count) > 0 for count in counts):
        raise InputError(f"--devices {text}: valid: numbers of devices from 1, such as 1,8")
    return tuple(int(count) for count in counts)


# ---- printing


def _show(comparison: Comparison, options: argparse.Namespace, code: int) -> None:
    if options.json:
        from ..report.comparison_json import render_comparison_json

        print(render_comparison_json(comparison, code), end="")
    elif options.markdown:
        from ..report.comparison import render_comparison_md

        print(render_comparison_md(comparison), end="")
    else:
        _print_text(comparison)


def _print_text(comparison: Comparison) -> None:
    from rich.console import Console

    from ..report import comparison as sentences
    from ..report.grid import TerminalGrid

    console = Console()

    def show(text: str, style: str = "") -> None:
        # rich would break lines between a number and its unit.
        lines = [textwrap.fill(line, console.width, break_on_hyphens=False) for line in text.split("\n")]
        console.print("\n".join(lines), style=style, soft_wrap=True, highlight=False, markup=False)

    for curve in comparison.curves:
        show(f"A  {sentences.describe_side(curve.a)}")
        show(f"B  {sentences.describe_side(curve.b)}\n")
        console.print(TerminalGrid(sentences.make_curve_grid(curve, comparison)), highlight=False)
        show(sentences.describe_curve(curve, comparison.margin) + "\n", "bold")
    show(sentences.explain_intervals(comparison), "dim")
    for note in sentences.list_notes(comparison):
        show(f"note: {note}")
    if len(comparison.curves) > 1:
        show(f"\nall curves: {sentences.make_headline(comparison)}", "bold")
    if comparison.gate:
        show(f"\n{sentences.describe_gate(comparison)}", "bold")
