"""What ``trainscale compare`` compares: runs, files, numbers and published curves, as a person names them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ..analyse.comparison.matching import select_series
from ..analyse.comparison.published_reference import compare_with_published
from ..analyse.comparison.saved_results import read_results
from ..analyse.comparison.sessions import pool_sessions
from ..analyse.comparison.sides import EFFICIENCY, SPEED, Side, make_reference_side, make_sides
from ..analyse.series import build_series
from ..errors import InputError, explain_unknown
from ..published.table import PREFIX, find_curve
from ..record.decoding import MOST_BYTES
from ..record.journal import RUN, read_run, read_trials
from ..record.parity import read_parity
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from ..worker.regular_files import read_regular
from .damage import warn_of_damage

_REFERENCE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*(\S+)/s\s+at\s+([0-9]+)\s+devices?\s*", re.I)
REFERENCE_FORM = '"1234 images/s at 8 devices"'


def read_sides(options: argparse.Namespace) -> tuple[list[Side], list[Side]]:
    """Return the series of A and of B that are to be compared."""
    runs, names = [run for run in (options.a, options.b) if run is not None], options.series or []
    if len(names) > 2:
        raise InputError(f"--series: given {len(names)} times; valid: once or twice")
    published = [text for text in runs if text.startswith(PREFIX)]
    if published:
        return _pair_with_curve(options, published, [text for text in runs if text not in published])
    if options.by:
        raise InputError("--by: valid with a published curve, published:ID; runs are compared by speed")
    if options.reference:
        if len(runs) > 1:
            raise InputError("--reference takes the place of A; valid: one run")
        return _pair_with_numbers(_select(_read(runs[0]), names), options.reference)
    if len(runs) == 1 and len(names) < 2:
        raise InputError(
            "one run was given; valid: two runs, or one and two of its series (--series), or --reference"
            f"{_list_titles(_read(runs[0]))}"
        )
    all_a, all_b = _read(runs[0]), _read(runs[-1])
    all_a, all_b = _select(all_a, names[:1]), _select(all_b, names[-1:])
    if _is_same(runs[0], runs[-1]) and {side.config for side in all_a} & {side.config for side in all_b}:
        raise InputError(
            f"A and B have the same series of {runs[0]}; valid: two runs, or two series of one run"
            f"{_list_titles(_read(str(_split(runs[0])[0])))}"
        )
    return all_a, all_b


def _pair_with_numbers(all_b: list[Side], texts: Sequence[str]) -> tuple[list[Side], list[Side]]:
    if len(all_b) > 1:
        raise InputError(
            f"--reference: {all_b[0].source} has several series; name one with --series{_list_titles(all_b)}"
        )
    speeds = _read_references(texts, all_b[0].unit)
    return [make_reference_side(all_b[0], speeds, ", ".join(texts))], all_b


def _pair_with_curve(
    options: argparse.Namespace, published: Sequence[str], runs: Sequence[str]
) -> tuple[list[Side], list[Side]]:
    """Return a published curve as A and the series of a run as B, in whichever order they were given."""
    curve, quantity = find_curve(published[0]), options.by or EFFICIENCY
    if quantity not in (EFFICIENCY, SPEED):
        raise explain_unknown("quantity", quantity, (EFFICIENCY, SPEED), "--by")
    if len(published) > 1 or not runs or options.reference:
        raise InputError(f"{published[0]}: valid together with one run, as in: trainscale compare {published[0]} DIR")
    sides = _select(_read(runs[0]), options.series or [])
    if len(sides) > 1:
        raise InputError(
            f"{published[0]}: {sides[0].source} has several series; name one with --series{_list_titles(sides)}"
        )
    a, b = compare_with_published(curve, sides[0], quantity)
    return [a], [b]


def _select(sides: list[Side], names: Sequence[str]) -> list[Side]:
    return [select_series(sides, name) for name in names] or sides


def _read(text: str) -> list[Side]:
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
    records = [record for record in read_trials(path, warn_of_damage) if _is_compared(record, run)]
    if not records:
        raise InputError(f"{path}: no trial of this run has finished; continue it with the command that began it")
    return make_sides(str(path), run, build_series(records, read_parity(path), by_budget=run.is_sequential))


def _read_file(path: Path) -> list[Side]:
    try:
        sides = read_results(str(path), read_regular(path, MOST_BYTES, pipes=True))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not sides:
        raise InputError(f"{path}: there is no series in it")
    return sides


def _is_compared(record: TrialRecord, run: RunInfo) -> bool:
    """Return whether a trial is one of those that were asked for: not a short one of a search, not one beside an
    explained ladder. Both have other windows.
    """
    strategies = run.read_spec().strategies
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


def _list_titles(sides: Sequence[Side]) -> str:
    return "\n  its series: " + "\n              ".join(side.title for side in sides)


def _read_references(texts: Sequence[str], unit: str) -> dict[int, float]:
    speeds = {}
    for text in texts:
        match = _REFERENCE.fullmatch(text)
        if match is None or not float(match[1].replace(",", "").replace("_", "")):
            raise InputError(f"--reference {text!r}: valid: a speed and a number of devices, {REFERENCE_FORM}")
        if match[2].casefold() != unit:
            raise InputError(f"--reference {text!r}: the run counts {unit}/s")
        speeds[int(match[3])] = float(match[1].replace(",", "").replace("_", ""))
    return speeds
