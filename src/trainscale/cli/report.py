"""``trainscale report DIR…``, and what a person sees when a run ends."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Any

from rich.console import Console

from ..analyse.throughput import parse_price
from ..errors import InputError
from ..questions.explain.text import list_closing_verdicts
from ..record.decoding import remove_unprintable
from ..record.journal import RUN
from ..report import check_can_report, run_tables
from ..report.csv_json import make_slug
from ..report.documents import SeriesTables, select_series_in_full
from ..report.options import NORMALISATIONS, SPEEDUP, Overlay, ReportOptions, read_formats
from ..runs import Run
from ..spec.groups import SETTINGS
from .parser import Parser, typed, warn_of_damage

DEFAULT_OUTPUT = Path("report")
_MOST_VERDICTS = 4  # trainscale explain has all
_MOST_POINTS = 4  # whose epochs are shown: more would push the other tables off the screen


def main(argv: list[str]) -> int:
    parser = Parser("report")
    add = parser.add
    add("directories", "DIR", "directories of runs", nargs="+", type=Path)
    add("-o --output", "DIR", f"where a report of several runs is written (default: {DEFAULT_OUTPUT}/)", type=Path)
    repeated: dict[str, Any] = {"action": "append", "default": []}
    add("--label", "NAME", "name of a run in a report of several, one for each (default: its directory)", **repeated)
    target = "show the training time to this validation accuracy, such as 0.9 (default: that of the run)"
    add("--until-accuracy", "SHARE", target, type=typed(SETTINGS["until_accuracy"].value_type))
    add("--format", "LIST", "also write charts as files: png, pdf, svg")
    add("--price", "PRICE", "show costs at a price such as 32.77/host-hour")
    add("--show-hosts", "", "name hosts in the page, report.md and the pictures")
    curve = "add a published curve to the charts; may be repeated"
    add("--with", "published:ID", curve, dest="overlay", **repeated)
    ways = f"how curves of --with are shown: {', '.join(NORMALISATIONS)} (default: {SPEEDUP})"
    add("--normalise", "NORMALISATION", ways, choices=NORMALISATIONS)
    options = parser.read(argv)
    if options.normalise and not options.overlay:
        raise InputError("--normalise: valid together with --with published:ID")
    curves = []
    for name in options.overlay:
        from ..questions.published.curves import PREFIX, find_curve

        if not name.startswith(PREFIX):
            valid = f"a published curve, {PREFIX}ID; trainscale published lists them"
            raise InputError(f"--with {name}: valid: {valid}")
        curves.append(find_curve(name, "--with"))
    price = None if options.price is None else parse_price(options.price)
    runs = _read_runs(options.directories, options.label)
    runs = [run.with_accuracy(options.until_accuracy) for run in runs]
    directory = _choose_output(runs, options.output)
    check_can_report()
    from ..report.outputs import write_report

    formats = () if options.format is None else read_formats(options.format, "--format")
    overlay = Overlay()
    if curves:
        from ..questions.published.text import overlay_curves

        measured = [(run.info, run.series) for run in runs]
        overlay = overlay_curves(measured, curves, options.normalise or SPEEDUP)
    report_options = ReportOptions(options.show_hosts, price, formats, overlay)
    no_charts = write_report(directory, runs, report_options)
    print_results(runs, str(directory))
    if no_charts:
        print(f"trainscale: charts are missing: {no_charts}", file=sys.stderr)
    for sentence, _, _ in overlay.sentences:
        print(fill(sentence, get_terminal_size().columns, break_on_hyphens=False))
    return 0


def _read_runs(directories: Sequence[Path], labels: Sequence[str]) -> list[Run]:
    if labels and len(directories) == 1:
        raise InputError("--label: valid with several runs; a report of one run needs no label")
    resolved = [directory.resolve() for directory in directories]
    for directory, path in zip(directories, resolved, strict=True):
        if (count := resolved.count(path)) > 1:
            raise InputError(f"{directory}: this run is named {count} times; valid: once")
    names = [remove_unprintable(label).strip() for label in labels] or [""]
    if len(directories) > 1 and not labels:  # their names, with parents where these tell them apart
        depth = 0
        while len(set(names)) < len(directories):
            depth += 1
            names = ["/".join(path.parts[-depth:]).lstrip("/") for path in resolved]
    if len(names) != len(directories):
        given = f"given {len(names)} times for {len(directories)} runs"
        raise InputError(f"--label: {given}; valid: once for each run")
    if len(names) > 1 and not all(names):
        raise InputError("--label: a label is empty")
    slugs = Counter(make_slug(name).lower() for name in names)
    for name in names:
        if slugs[make_slug(name).lower()] > 1:
            reason = "another run has this label, or one with the same file names"
            raise InputError(f"--label {name}: {reason}")
    pairs = zip(directories, names, strict=True)
    return [Run.open(path, warn_of_damage, name) for path, name in pairs]


def _choose_output(runs: Sequence[Run], output: Path | None) -> Path:
    """Return the run's own directory; for several runs an empty one, or that of a report."""
    if len(runs) == 1:
        if output is not None:
            reason = "the report of one run is in its own directory"
            raise InputError(f"--output: valid with several runs; {reason}")
        return runs[0].directory
    directory = output or DEFAULT_OUTPUT
    problem = ""
    if directory.exists() and not directory.is_dir():
        problem = "this is a file"
    elif (directory / RUN).exists():
        problem = "this is the directory of a run, which holds the run's own report"
    elif directory.exists() and any(directory.iterdir()):
        try:
            document = json.loads((directory / "results.json").read_bytes())
            held = [each["run"] for each in document["runs"]]
        except (OSError, ValueError, LookupError, TypeError):
            held = []
        if held != [json.loads(json.dumps(run.info.to_dict())) for run in runs]:
            problem = "this directory holds other files, or a report of other runs"
    if problem:
        raise InputError(f"--output {directory}: {problem}; name a new directory by --output")
    return directory


def print_results(runs: Sequence[Run], location: str) -> None:
    """``location`` names the directory of the report."""
    console, grids = Console(highlight=False), []
    if any(run.records for run in runs):
        all_series = [series for run in runs for series in select_series_in_full(run)]
        console.print(SeriesTables(all_series))
    if len(runs) > 1:
        grids.append(run_tables.make_difference_grid(runs))
    for run in runs:
        if run.info.is_search:
            grids += run_tables.make_search_grids(run)
    for grid in grids:
        console.print(grid)
    if len(runs) == 1:
        if any(series.learns for series in runs[0].series):
            epochs = run_tables.make_epoch_grids(runs[0].series, run_tables.MOST_IN_TERMINAL)
            datasets = run_tables.make_datasets_grid(runs[0].info, runs[0].series)
            if len(epochs) > _MOST_POINTS:
                console.print(f"Every epoch of these {len(epochs)} points is in report.md.\n")
            for grid in (
                *(epochs if len(epochs) <= _MOST_POINTS else ()),
                *run_tables.make_device_grids(runs[0].series),
                *run_tables.make_system_grids(runs[0]),
                run_tables.make_machines_grid(runs[0].info),
                *((datasets,) if datasets else ()),
            ):
                console.print(grid)
        if (runs[0].directory / "batches.json").exists():  # the batches of --batch auto
            from ..measure.batches import describe_search, read_batches

            for search in read_batches(runs[0].directory).values():
                if search.done:
                    console.print(describe_search(search), soft_wrap=True, markup=False)
    for run in runs:
        place, prefix = (f"{run.label}/", f"{run.label}: ") if len(runs) > 1 else (location, "")
        verdicts = list_closing_verdicts(run.info, run.records)
        for line in verdicts[:_MOST_VERDICTS]:
            console.print(f"{prefix}{line}", soft_wrap=True, markup=False)
        left_out = len(verdicts) - _MOST_VERDICTS
        if left_out > 0:
            line = f"{left_out} more series: trainscale explain {place}"
            console.print(f"{prefix}{line}", soft_wrap=True, markup=False)
    summary = "(open report.html; plots: *.svg; tables: report.md, results.csv, csv_*/)"
    console.print(f"results: {location}/  {summary}", soft_wrap=True, markup=False)


def print_summary_lines(run: Run) -> None:
    """Print the lines ``key: value unit`` of a run."""
    from ..export.tables import list_summary_lines

    print("\n".join(list_summary_lines(run)))
