"""``trainscale compare A B``: whether B is faster or slower than A, and a gate for CI and for acceptance tests."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

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
from ..analyse.comparison.matching import match_sides, select_series
from ..analyse.comparison.saved_results import read_results
from ..analyse.comparison.sessions import pool_sessions
from ..analyse.comparison.sides import Side, make_sides, reference_side
from ..analyse.series import build_series
from ..errors import InputError, unknown
from ..record.journal import RUN, read_run, read_trials
from ..record.parity import read_parity
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from .parser import Parser

_CANNOT_TELL = 3  # the exit code of a gate that more repeats would decide
_REFERENCE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*(\S+)/s\s+at\s+([0-9]+)\s+devices?\s*", re.I)
_FORM = '"1234 images/s at 8 devices"'


def main(argv: list[str]) -> int:
    options = _parser().read(argv)
    gate = make_gate(options.threshold, options.at_least)
    if options.strict and gate is None:
        raise InputError("--strict: valid together with --threshold or --at-least")
    despite = read_despite(options.despite)
    devices = _read_devices(options.devices)
    all_a, all_b = _read_both(options)
    comparison = compare_pairs(match_sides(all_a, all_b, despite), despite, gate, devices)
    code = exit_code(comparison, options.strict)
    _show(comparison, options, code)
    return code


def exit_code(comparison: Comparison, is_strict: bool) -> int:
    """Return 1 if the gate failed. Where it cannot tell, acceptance is not given, but a regression is not shown."""
    if comparison.gate is None or comparison.outcome == PASS:
        return 0
    if comparison.outcome == FAIL:
        return 1
    return _CANNOT_TELL if is_strict or comparison.gate.kind == AT_LEAST else 0


def _parser() -> Parser:
    parser = Parser(
        "compare",
        "Compare two runs, or two series of one run, point by point: is B faster or slower than A, the same, or can"
        " these repeats not tell? Exit codes: 0 passed, 1 the gate failed, 2 not comparable, 3 the gate cannot tell.",
    )
    add = parser.add_argument
    add(
        "a",
        metavar="A",
        help="the reference: the directory of a run, a folder of runs, or a results.json; DIR:SERIES is one series",
    )
    add("b", nargs="?", metavar="B", help="what is judged; left out with --reference, or with two --series of one run")
    add(
        "--series", action="append", metavar="TITLE", help="compare only this series; given twice: these two of one run"
    )
    add("--devices", metavar="N,…", help="look only at these device counts (default: all that both have)")
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
        help=f"compare with a number instead of A: {_FORM}; may be given for several device counts",
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
            raise unknown("name", name, NAMES, "--despite")
    return names


def _read_devices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    counts = [part.strip() for part in text.split(",") if part.strip()]
    if not counts or not all(count.isascii() and count.isdigit() and int(count) > 0 for count in counts):
        raise InputError(f"--devices {text}: valid: numbers of devices from 1, such as 1,8")
    return tuple(int(count) for count in counts)


def _read_references(texts: Sequence[str], unit: str) -> dict[int, float]:
    speeds = {}
    for text in texts:
        match = _REFERENCE.fullmatch(text)
        if match is None or not float(match[1].replace(",", "").replace("_", "")):
            raise InputError(f"--reference {text!r}: valid: a speed and a number of devices, {_FORM}")
        if match[2].casefold() != unit:
            raise InputError(f"--reference {text!r}: the run counts {unit}/s")
        speeds[int(match[3])] = float(match[1].replace(",", "").replace("_", ""))
    return speeds


# ---- reading runs


def _read_both(options: argparse.Namespace) -> tuple[list[Side], list[Side]]:
    """Return the series of A and of B that are to be compared."""
    runs, names = [run for run in (options.a, options.b) if run is not None], options.series or []
    if len(names) > 2:
        raise InputError(f"--series: given {len(names)} times; valid: once or twice")
    if options.reference:
        if len(runs) > 1:
            raise InputError("--reference takes the place of A; valid: one run")
        return _against_numbers(_select(read_sides(runs[0]), names), options.reference)
    if len(runs) == 1 and len(names) < 2:
        raise InputError(
            "one run was given; valid: two runs, or one and two of its series (--series), or --reference"
            f"{_titles(read_sides(runs[0]))}"
        )
    all_a, all_b = read_sides(runs[0]), read_sides(runs[-1])
    all_a, all_b = _select(all_a, names[:1]), _select(all_b, names[-1:])
    if _is_same(runs[0], runs[-1]) and {side.config for side in all_a} & {side.config for side in all_b}:
        raise InputError(
            f"A and B have the same series of {runs[0]}; valid: two runs, or two series of one run"
            f"{_titles(read_sides(str(_split(runs[0])[0])))}"
        )
    return all_a, all_b


def _against_numbers(all_b: list[Side], texts: Sequence[str]) -> tuple[list[Side], list[Side]]:
    if len(all_b) > 1:
        raise InputError(f"--reference: {all_b[0].source} has several series; name one with --series{_titles(all_b)}")
    speeds = _read_references(texts, all_b[0].unit)
    return [reference_side(all_b[0], speeds, ", ".join(texts))], all_b


def _select(sides: list[Side], names: Sequence[str]) -> list[Side]:
    return [select_series(sides, name) for name in names] or sides


def read_sides(text: str) -> list[Side]:
    """Read a run's directory, a folder of such directories or a results.json. A colon and a series may follow."""
    path, series = _split(text)
    sessions = (
        sorted(run.parent for run in path.glob(f"*/{RUN}")) if path.is_dir() and not (path / RUN).exists() else []
    )
    if sessions:
        sides = pool_sessions(str(path), [_read_run(session) for session in sessions])
    else:
        sides = _read_run(path) if path.is_dir() else _read_file(path)
    return [select_series(sides, series)] if series else sides


def _read_run(path: Path) -> list[Side]:
    run = read_run(path)
    records = [record for record in read_trials(path) if _is_compared(record, run)]
    if not records:
        raise InputError(f"{path}: no trial of this run has finished; continue it with the command that began it")
    return make_sides(str(path), run, build_series(records, read_parity(path), by_budget=run.is_sequential))


def _read_file(path: Path) -> list[Side]:
    try:
        sides = read_results(str(path), path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not sides:
        raise InputError(f"{path}: there is no series in it")
    return sides


def _is_compared(record: TrialRecord, run: RunInfo) -> bool:
    """Whether a trial is one of those that were asked for: not a short one of a search, not one beside an explained
    ladder. Both have other windows.
    """
    strategies = [series.get("strategy") for series in run.spec.get("series", [])]
    is_further = record.trial.config.strategy == "independent" and strategies and "independent" not in strategies
    return not record.trial.short and not is_further


def _split(text: str) -> tuple[Path, str]:
    """Split at the first colon that ends the path of a file or directory: both paths and titles may have colons."""
    if Path(text).exists():
        return Path(text), ""
    colons = [index for index, letter in enumerate(text) if letter == ":"]
    for index in colons:
        if index and Path(text[:index]).exists():
            return Path(text[:index]), text[index + 1 :]
    raise InputError(f"{text}: there is no such run; valid: the directory of a run, a results.json, or DIR:SERIES")


def _is_same(first: str, second: str) -> bool:
    return _split(first)[0].resolve() == _split(second)[0].resolve()


def _titles(sides: Sequence[Side]) -> str:
    return "\n  its series: " + "\n              ".join(side.title for side in sides)


# ---- printing


def _show(comparison: Comparison, options: argparse.Namespace, code: int) -> None:
    if options.json:
        from ..report.comparison_json import comparison_json

        print(comparison_json(comparison, code), end="")
    elif options.markdown:
        from ..report.comparison import comparison_md

        print(comparison_md(comparison), end="")
    else:
        _print_text(comparison)


def _print_text(comparison: Comparison) -> None:
    from rich.console import Console

    from ..report import comparison as words
    from ..report.grid import TerminalGrid

    console = Console()

    def show(text: str, style: str = "") -> None:
        # rich would break lines between a number and its unit.
        lines = [textwrap.fill(line, console.width, break_on_hyphens=False) for line in text.split("\n")]
        console.print("\n".join(lines), style=style, soft_wrap=True, highlight=False, markup=False)

    for curve in comparison.curves:
        show(f"A  {words.describe_side(curve.a)}")
        show(f"B  {words.describe_side(curve.b)}\n")
        console.print(TerminalGrid(words.curve_grid(curve, comparison)), highlight=False)
        show(words.curve_sentence(curve, comparison.margin) + "\n", "bold")
    show(words.explanation(comparison), "dim")
    for note in words.notes(comparison):
        show(f"note: {note}")
    if len(comparison.curves) > 1:
        show(f"\nall curves: {words.headline(comparison)}", "bold")
    if comparison.gate:
        show(f"\n{words.gate_sentence(comparison)}", "bold")
