"""``trainscale parity``: prove that frameworks train the same network, or show where they differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.devices import find_local_devices
from ..errors import InputError
from ..launch.inspection.hosts import choose_pythons
from ..launch.launchers.local import LocalLauncher
from ..measure.context import RunContext
from ..measure.parity import group_comparisons, prove
from ..measure.preflight import check_frameworks
from ..record.parity import PROVEN, Check, Verdict
from ..report import numbers
from ..spec.plan import make_plan
from ..worker.inspection.host import read_machine
from .parser import Parser, add_experiment, read_experiment

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_SETTINGS = ("models", "frameworks", "image_size", "classes", "layout", "seed", "device", "python")


def main(argv: list[str]) -> int:
    from rich.console import Console

    parser = Parser(
        "parity",
        "Prove that frameworks train the same network. The check compares counts, initial weights, logits, the"
        " losses, weights and running statistics of three steps in float64 and float32, dropout rates and 8-bit images."
        " The first framework is the reference. The exit code is 0 if all are proven.",
    )
    parser.add_argument("--fresh", action="store_true", help="compute all numbers again, even those that are cached")
    add_experiment(parser, _SETTINGS)
    options = parser.read(argv)
    experiment = read_experiment(options)
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    if not group_comparisons(plan.configs):
        raise InputError(
            f"frameworks {', '.join(experiment.work.frameworks)}: nothing to compare; valid: two frameworks or more"
        )
    pythons = choose_pythons((config.framework for config in plan.configs), dict(experiment.resources.python or ()))
    context = check_frameworks(RunContext(plan, LocalLauncher(), pythons))
    for name, reason in context.missing.items():
        print(f"trainscale: framework {name!r}: {reason}\n  the others are measured", file=sys.stderr)
    configs = context.usable_plan.configs
    verdicts = prove(context, configs, lambda line: print(line, file=sys.stderr, flush=True), options.fresh)
    console = Console(highlight=False)
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        console.print(_make_table(model, [verdict for verdict in verdicts if verdict.model == model]))
    return 0 if verdicts and not context.missing and all(verdict.state == PROVEN for verdict in verdicts) else 1


# Headings, short enough for 80 columns, and the checks of analyse/parity.py that they show.
_COLUMNS = {
    "start\nf64": "initial weights",
    "logits\nf64": "logits, float64",
    "moves\nf64": "weights after 3 steps, float64",
    "logits\nf32": "logits, float32",
    "moves\nf32": "closest tensor after the first step, float32",
}
_COUNTS = ("parameters", "multiply-adds")


def _make_table(model: str, verdicts: Sequence[Verdict]) -> RenderableType:
    """Return a table with a row for each framework and a column for each check, with the allowed differences."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{model}: relative differences from {verdicts[0].reference}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("framework", no_wrap=True, vertical="bottom")
    for heading in ("counts", *_COLUMNS, "others"):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    table.add_column("", no_wrap=True)
    checks = next((verdict.checks for verdict in verdicts if verdict.checks), ())
    table.add_row(
        "allowed",
        *(numbers.format_scientific(check.tolerance) for check in _select_shown_checks(checks)),
        "",
        style="dim",
    )
    for verdict in verdicts:
        cells = [
            Text(numbers.format_scientific(c.difference), style="" if c.ok else "bold red")
            for c in _select_shown_checks(verdict.checks)
        ]
        if cells:
            cells.append(_describe_others(verdict.checks))
        state = Text(verdict.state, style="green" if verdict.state == PROVEN else "bold red")
        name = f"{verdict.framework} {verdict.layout}"
        table.add_row(name, *(cells or [Text("")] * (len(_COLUMNS) + 2)), state)
    doubts = [Text(f"{v.framework}: {v.warning}", style="red") for v in verdicts if v.warning]
    return Group(table, *doubts, Text(""))


def _select_shown_checks(checks: Sequence[Check]) -> Sequence[Check]:
    """Return the worse of the two counts, then the checks that have a column."""
    if not checks:
        return ()
    by_name = {check.name: check for check in checks}
    counts = max((by_name[name] for name in _COUNTS), key=lambda check: check.difference or 0.0)
    return [counts, *(by_name[name] for name in _COLUMNS.values())]


def _describe_others(checks: Sequence[Check]) -> Text:
    """Say how many of the checks without a column have failed."""
    from rich.text import Text

    shown = {*_COUNTS, *_COLUMNS.values()}
    failed = sum(not check.ok for check in checks if check.name not in shown)
    return Text(f"{failed} bad", style="bold red") if failed else Text("ok")
