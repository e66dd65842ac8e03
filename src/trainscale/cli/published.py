"""``trainscale published``: scaling results of others, with their sources; and where a run stands among them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from ..errors import InputError
from ..questions.published.curves import (
    PublishedCurve,
    Wanted,
    find_curve,
    parse_years,
    read_curves,
    select_curves,
)
from ..questions.published.near import (
    NeighbourComparison,
    describe_comparison,
    list_neighbours,
    make_heading,
    place_run,
    render_like_json,
)
from ..runs import Run
from .damage import warn_of_damage
from .parser import Parser

_FILTERS = ("network", "hardware", "framework", "year", "min_devices")
_PICTURES = (".svg", ".png")


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    _check(options)
    if options.like:
        count = _read_count(options.devices, "--devices")
        _show_comparisons(place_run(Run.open(options.like, warn_of_damage), count, options.series), options.json)
        return 0
    curves = [find_curve(options.id)] if options.id else select_curves(read_curves(), _read_filters(options))
    if options.json:
        from ..questions.published.text import render_published_json

        print(render_published_json(curves), end="")
    elif options.id:
        _show_curve(curves[0])
    else:
        _show_list(curves)
    if options.output:
        _write_chart(curves[0], options.output)
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        "published",
        "List, filter and draw scaling results that others have published, each with its source; or compare a run with"
        " those that are most like it.",
    )
    add = parser.add_argument
    add("id", nargs="?", metavar="ID", help="show this curve: its points, efficiency, source and flags")
    add("--network", metavar="NAME", help="only curves of this network, such as resnet50")
    add("--hardware", metavar="NAME", help="only curves on these devices, such as V100 or DGX-1")
    add("--framework", metavar="NAME", help="only curves of this framework, such as torch")
    add("--year", metavar="YEAR", help="only curves of this year, or of a range such as 2015-2018")
    add("--min-devices", metavar="N", help="only curves that reach this many devices")
    add("--like", type=Path, metavar="DIR", help="compare the efficiency of this run with the nearest published points")
    add("--devices", metavar="N", help="with --like: the device count to compare (default: the largest)")
    add("--series", metavar="TITLE", help="with --like: compare only this series of the run")
    add("--output", type=Path, metavar="FILE", help="with ID: draw the curve into this file, .svg or .png")
    add("--json", action="store_true", help="print JSON")
    return parser


# ---- reading the command line


def _check(options: argparse.Namespace) -> None:
    filters = [f"--{name.replace('_', '-')}" for name in _FILTERS if getattr(options, name) is not None]
    if options.id and (options.like or filters):
        raise InputError(f"ID shows one curve; {(['--like'] if options.like else filters)[0]} is valid without it")
    if options.like and filters:
        raise InputError(f"--like looks at all curves; {filters[0]} is valid without it")
    for name in ("devices", "series"):
        if getattr(options, name) is not None and not options.like:
            raise InputError(f"--{name}: valid together with --like")
    if options.output and not options.id:
        raise InputError("--output: valid together with an ID")
    if options.output and options.output.suffix not in _PICTURES:
        raise InputError(f"--output {options.output}: valid: a name that ends in {' or '.join(_PICTURES)}")


def _read_filters(options: argparse.Namespace) -> Wanted:
    return Wanted(
        network=options.network,
        hardware=options.hardware,
        framework=options.framework,
        years=None if options.year is None else parse_years(options.year),
        min_devices=_read_count(options.min_devices, "--min-devices"),
    )


def _read_count(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"{flag} {text}: valid: a number of devices from 1")
    return int(text)


# ---- printing


def _show_comparisons(comparisons: Sequence[NeighbourComparison], as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(render_like_json(comparisons), end="")
        return
    width = Console().width
    for comparison in comparisons:
        print(fill(describe_comparison(comparison), width, break_on_hyphens=False) + "\n")
        print(fill(make_heading(comparison), width))
        for line, difference in list_neighbours(comparison):
            print(line)
            print(fill(difference, width, initial_indent=" " * 18, subsequent_indent=" " * 18, break_on_hyphens=False))
        print()


def _show_list(curves: Sequence[PublishedCurve]) -> None:
    from rich.console import Console

    from ..questions.published.text import make_list_grid
    from ..report.table import TerminalGrid

    console = Console(highlight=False)
    if curves:
        console.print(TerminalGrid(make_list_grid(curves, console.width)))
    else:
        print("No published curve has all of that.")


def _show_curve(curve: PublishedCurve) -> None:
    from rich.console import Console

    from ..questions.published.text import describe, make_curve_grid
    from ..report.table import TerminalGrid

    console = Console(highlight=False)
    console.print(TerminalGrid(make_curve_grid(curve)))
    for name, text in describe(curve):
        lines = fill(text, max(40, console.width - 14), break_on_hyphens=False, break_long_words=False).splitlines()
        print(f"{name:<13} " + ("\n" + " " * 14).join(lines))


def _write_chart(curve: PublishedCurve, path: Path) -> None:
    from ..report.installation import check_can_report

    check_can_report()
    from ..questions.published.text import write_curve_chart

    try:
        write_curve_chart(curve, path)
    except OSError as error:
        raise InputError(f"--output {path}: cannot be written: {error.strerror}") from None
