"""The commands that ask finished runs: ``explain``, ``best``, ``predict``, …, ``published``.

Each prints an answer of the folder or file of its name in questions/.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from textwrap import fill, indent

from .. import runs
from ..errors import InputError
from ..runs import Run
from ..spec.groups import SETTINGS
from ..spec.settings import listed, share, whole
from .parser import Parser, add_formats, add_run, typed, warn_of_damage

_COUNT, _COUNTS = typed(whole(1)), typed(listed(whole(1)))
_FILTERS = ("network", "hardware", "framework", "year", "min_devices")
_PICTURES = (".svg", ".png")


def explain(argv: list[str]) -> int:
    parser = Parser("explain")
    add_run(parser)
    add_formats(parser)
    options = parser.read(argv)
    answer = runs.explain(Run.open(options.directory, warn_of_damage))
    _show(options, lambda: print(answer.text, end=""), answer.to_markdown, answer.to_json)
    return 0


def _show(
    options: argparse.Namespace,
    show_text: Callable[[], None],
    render_markdown: Callable[[], str],
    render_json: Callable[[], str],
) -> None:
    if options.json or options.markdown:
        text = render_json() if options.json else render_markdown()
        print(text.removesuffix("\n"))
    else:
        show_text()


def best(argv: list[str]) -> int:
    from ..questions.best.best import COST, CRITERIA, SPEED, TIME

    parser = Parser("best")
    add = parser.add
    add("directories", "DIR", "directories of runs", nargs="+", type=Path)
    add("--by", "CRITERION", f"{', '.join(CRITERIA)} (default: {SPEED})", choices=CRITERIA, default=SPEED)
    add("--price", "PRICE", "show costs at a price such as 32.77/host-hour or 2.5/device-hour")
    target = f"validation accuracy for --by {TIME}, such as 0.9 (default: the accuracy of the run)"
    add("--until-accuracy", "SHARE", target, type=typed(SETTINGS["until_accuracy"].value_type))
    add_formats(parser)
    options = parser.read(argv)
    if options.by == COST and options.price is None:
        valid = "--price 32.77/host-hour or --price 2.5/device-hour"
        raise InputError(f"--by cost: no price is given; valid with {valid}")
    opened = [Run.open(path, warn_of_damage) for path in options.directories]
    target = options.until_accuracy
    answer = runs.best(*opened, by=options.by, price=options.price, until_accuracy=target)
    if options.by != SPEED and not any(choice.leader for choice in answer.choices):
        left_out = [out for choice in answer.choices for out in choice.left_out]
        reasons = "; ".join(dict.fromkeys(out.reason for out in left_out))
        raise InputError(f"--by {options.by}: no trial of these runs has a value: {reasons}")
    from ..questions.best.text import print_text, render_json

    _show(options, lambda: print_text(answer), lambda: answer.text, lambda: render_json(answer))
    return 0


def predict(argv: list[str]) -> int:
    from ..questions import predict as question

    parser = Parser("predict")
    add_run(parser)
    default = f"2 and {question.MOST_TIMES} times the largest measured one"
    parser.add("--devices", "N,…", f"device counts (default: {default})", type=_COUNTS)
    add_formats(parser)
    options = parser.read(argv)
    predicted = question.predict(Run.open(options.directory, warn_of_damage), options.devices)
    _show(
        options,
        lambda: question.print_predictions(predicted),
        lambda: question.render_prediction_markdown(predicted),
        lambda: question.render_prediction_json(predicted),
    )
    return 0 if any(series.predictions for series in predicted) else 1


def study(argv: list[str]) -> int:
    from ..questions.study.study import FORMATS, GOOD_EFFICIENCY, Training, make_studies

    parser = Parser("study")
    add_run(parser)
    add = parser.add
    add("--for", "PURPOSE", "proposal (default)", choices=["proposal"], default="proposal")
    add("--devices", "N", "the number of devices that is requested (default: the most that were measured)", type=_COUNT)
    least = f"name the largest size with at least this efficiency (default: {GOOD_EFFICIENCY:.0%}%)"
    add("--efficiency", "SHARE", least, type=typed(share(1)), default=GOOD_EFFICIENCY)
    add("--epochs", "N", "compute the cost of a training of N epochs", type=_COUNT)
    add("--data-size", "N", "samples of an epoch (default: those of the data set of the run)", type=_COUNT)
    add("-o --output", "FILE", "the file (default: standard output)")
    add("--format", "FORMAT", f"{', '.join(FORMATS)} (default: text)", choices=FORMATS, default="text")
    options = parser.read(argv)
    if options.epochs is None and options.data_size is not None:
        raise InputError("--data-size: valid together with --epochs")
    from ..questions.study.text import render_studies
    from ..record.files import write_output

    run, training = Run.open(options.directory, warn_of_damage), None
    if options.epochs is not None:
        data = run.info.read_provenance().data
        samples = options.data_size or (data.train if data else None)
        if samples is None:
            reason = "this run has synthetic data, which has no size"
            raise InputError(f"--epochs: {reason}; valid together with --data-size")
        training = Training(options.epochs, samples)
    studies = make_studies(run, options.devices, options.efficiency, training)
    text = render_studies(studies, options.format)
    if options.output is None:
        print(text, end="")
        return 0
    print(f"{write_output(options.output, text)}: written")
    return 0


def compare(argv: list[str]) -> int:
    from ..questions.compare.compare import AT_LEAST, FAIL, NAMES, PASS, compare_runs
    from ..questions.compare.sides import EFFICIENCY, SPEED

    parser = Parser(
        "compare",
        "Compare two runs, or two series of one run, point by point. Exit codes: 0 passed, 1 the gate failed,"
        " 2 not comparable, or nowhere three repeats on both sides, 3 the gate cannot tell.",
    )
    add = parser.add
    add("a", "A", "the reference: a run, a results.json, DIR:SERIES, or published:ID, wherever it stands")
    add("b", "B", "what is judged; left out with two --series of one run", nargs="?")
    series = "compare only this series; give it twice to compare two series of one run"
    add("--series", "TITLE", series, action="append")
    add("--devices", "N,…", "compare only these device counts (default: all that both have)", type=_COUNTS)
    add_gate = parser.add_mutually_exclusive_group().add_argument
    add_gate("--threshold", metavar="SHARE", help="exit code 1 on a regression beyond this, such as 2%%")
    at_least = "accept B if it reaches this share of A, such as 95%%: 0 yes, 1 no"
    add_gate("--at-least", metavar="SHARE", help=at_least)
    add("--strict", "", "exit code 3 where --threshold cannot tell (default: 0)")
    add("--reference", None, argparse.SUPPRESS, action="append")  # of version 0.1
    quantities = f"what to compare with a published curve: {EFFICIENCY} (the default) or {SPEED}"
    add("--by", "QUANTITY", quantities, choices=(EFFICIENCY, SPEED))
    add("--despite", "NAME,…", f"compare although these differ: {', '.join(NAMES)}")
    add_formats(parser)
    options = parser.read(argv)
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
        devices=options.devices,
        series=options.series or (),
        by=options.by,
        on_damage=warn_of_damage,
    )
    if comparison.outcome == FAIL:
        code = 1
    elif not comparison.has_interval:  # no gate could ever fail
        code = InputError.exit_code
    elif comparison.gate is None or comparison.outcome == PASS:
        code = 0
    else:  # more repeats would decide
        code = 3 if options.strict or comparison.gate.kind == AT_LEAST else 0
    from ..questions.compare.text import print_text, render_json

    _show(
        options,
        lambda: print_text(comparison),
        lambda: comparison.text,
        lambda: render_json(comparison, code),
    )
    return code


def published(argv: list[str]) -> int:
    from rich.console import Console

    from ..questions.published import near, text
    from ..questions.published.curves import find_curve, parse_years, select_curves

    parser = Parser("published")
    add = parser.add
    add("id", "ID", "show this curve: its points, efficiency, source and flags", nargs="?")
    add("--network", "NAME", "only curves of this network, such as resnet50")
    add("--hardware", "NAME", "only curves on these devices, such as V100 or DGX-1")
    add("--framework", "NAME", "only curves of this framework, such as torch")
    add("--year", "YEAR", "only curves of this year, or of a range such as 2015-2018")
    add("--min-devices", "N", "only curves that reach this many devices", type=_COUNT)
    add("--like", "DIR", "compare this run with the nearest published points", type=Path)
    add("--devices", "N", "with --like: the device count to compare (default: the largest)", type=_COUNT)
    add("--series", "TITLE", "with --like: compare only this series of the run")
    add("--output", "FILE", "with ID: draw the curve into this file, .svg or .png", type=Path)
    add("--json", "", "print JSON")
    options = parser.read(argv)
    given = [name for name in _FILTERS if getattr(options, name) is not None]
    filters = [f"--{name.replace('_', '-')}" for name in given]
    if options.id and (options.like or filters):
        flag = "--like" if options.like else filters[0]
        raise InputError(f"ID shows one curve; {flag} is valid without it")
    if options.like and filters:
        raise InputError(f"--like looks at all curves; {filters[0]} is valid without it")
    for name in ("devices", "series"):
        if getattr(options, name) is not None and not options.like:
            raise InputError(f"--{name}: valid together with --like")
    if options.output and not options.id:
        raise InputError("--output: valid together with an ID")
    if options.output and options.output.suffix not in _PICTURES:
        valid = f"a name that ends in {' or '.join(_PICTURES)}"
        raise InputError(f"--output {options.output}: valid: {valid}")
    console = Console(highlight=False)
    if options.like:
        run = Run.open(options.like, warn_of_damage)
        comparisons = near.place_run(run, options.devices, options.series)
        if options.json:
            print(near.render_like_json(comparisons), end="")
            return 0
        for comparison in comparisons:
            summary = near.describe_comparison(comparison)
            print(fill(summary, console.width, break_on_hyphens=False) + "\n")
            print(fill(near.make_heading(comparison), console.width))
            for line, difference in near.list_neighbours(comparison):
                wrapped = fill(difference, console.width - 18, break_on_hyphens=False)
                print(f"{line}\n{indent(wrapped, ' ' * 18)}")
            print()
        return 0
    if options.id:
        curves = [find_curve(options.id)]
    else:
        years = None if options.year is None else parse_years(options.year)
        names = options.network, options.hardware, options.framework
        curves = select_curves(*names, years, options.min_devices)
    if options.json:
        print(text.render_published_json(curves), end="")
    elif options.id:
        console.print(text.make_curve_grid(curves[0]))
        width = max(40, console.width - 14)
        for name, value in text.describe(curves[0]):
            wrapped = fill(value, width, break_on_hyphens=False, break_long_words=False)
            print(f"{name:<13} {indent(wrapped, ' ' * 14).lstrip()}")
    elif curves:
        console.print(text.make_list_grid(curves, console.width))
    else:
        print("No published curve has all of that.")
    if options.output:
        from ..report import check_can_report

        check_can_report()
        text.write_curve_chart(curves[0], options.output)
    return 0
