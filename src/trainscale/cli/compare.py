"""``trainscale compare A B``: whether B is faster or slower than A, and a gate for CI and for acceptance tests."""

from __future__ import annotations

import argparse

from ..errors import InputError
from ..questions.compare.compare import AT_LEAST, FAIL, PASS, RunComparison, compare_runs
from ..questions.compare.differences import NAMES
from ..questions.compare.sides import EFFICIENCY, SPEED
from .damage import warn_of_damage
from .parser import Parser

_CANNOT_TELL = 3  # the exit code of a gate that more repeats would decide


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    if options.reference:
        raise InputError(
            "--reference: a number is no longer compared; results.json has the 95 % interval of every speed: accept B"
            " if the lower end is at least the number; or compare with a run or a published curve"
        )
    if options.strict and options.threshold is None and options.at_least is None:
        raise InputError("--strict: valid together with --threshold or --at-least")
    comparison = compare_runs(
        options.a,
        options.b,
        threshold=options.threshold,
        at_least=options.at_least,
        despite=[name.strip() for name in (options.despite or "").split(",") if name.strip()],
        devices=_read_devices(options.devices),
        series=options.series or (),
        by=options.by,
        on_damage=warn_of_damage,
    )
    code = choose_exit_code(comparison, options.strict)
    from ..questions.compare.text import print_text, render_json

    if options.json:
        print(render_json(comparison, code), end="")
    elif options.markdown:
        print(comparison.text, end="")
    else:
        print_text(comparison)
    return code


def choose_exit_code(comparison: RunComparison, is_strict: bool) -> int:
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
        help="the reference: the directory of a run or a results.json; DIR:SERIES is one series; published:ID is a"
        " published curve, which is the reference wherever it stands",
    )
    add("b", nargs="?", metavar="B", help="what is judged; left out with two --series of one run")
    series = "compare only this series; give it twice to compare two series of one run"
    add("--series", action="append", metavar="TITLE", help=series)
    add("--devices", metavar="N,…", help="compare only these device counts (default: all that both have)")
    gates = parser.add_mutually_exclusive_group()
    gates.add_argument("--threshold", metavar="SHARE", help="exit code 1 on a regression beyond this, such as 2%%")
    gates.add_argument(
        "--at-least", metavar="SHARE", help="accept B if it reaches this share of A, such as 95%%: 0 yes, 1 no"
    )
    add("--strict", action="store_true", help="exit code 3 where --threshold cannot tell (default: 0)")
    add("--reference", action="append", help=argparse.SUPPRESS)  # of version 0.1
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


def _read_devices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    counts = [part.strip() for part in text.split(",") if part.strip()]
    if not counts or not all(count.isascii() and count.isdigit() and int(count) > 0 for count in counts):
        raise InputError(f"--devices {text}: valid: numbers of devices from 1, such as 1,8")
    return tuple(int(count) for count in counts)
