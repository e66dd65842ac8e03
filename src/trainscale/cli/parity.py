"""``trainscale parity``: prove that frameworks train the same network, or show where they differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.devices import find_local_devices
from ..errors import InputError
from ..launch.inspection.pythons import choose_pythons
from ..launch.launchers.local import LocalLauncher
from ..record.parity import PROVEN, Check, Verdict
from ..report import numbers
from ..run.context import RunContext
from ..run.parity import comparisons, prove
from ..run.preflight import check_frameworks
from ..spec.plan import make_plan
from ..worker.inspection.machine import read_machine
from .parser import Parser, add_experiment, read_experiment
from .run import print_missing

if TYPE_CHECKING:
    from rich.console import RenderableType

_SETTINGS = ("models", "frameworks", "image_size", "classes", "layout", "seed", "device", "python")


def main(argv: list[str]) -> int:
    from rich.console import Console

    parser = Parser(
        "parity",
        "Prove that frameworks train the same network. Compared are counts, initial weights, logits, and the losses"
        " and weights of three steps in float64. The first framework is the reference. The exit code is 0 if all are"
        " proven.",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="compute all numbers again, even those that are remembered"
    )
    add_experiment(parser, _SETTINGS)
    options = parser.read(argv)
    experiment = read_experiment(options)
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    if not comparisons(plan.configs):
        raise InputError(
            f"frameworks {', '.join(experiment.work.frameworks)}: nothing to compare; valid: two frameworks or more"
        )
    pythons = choose_pythons((config.framework for config in plan.configs), dict(experiment.resources.python or ()))
    context = check_frameworks(RunContext(plan, LocalLauncher(), pythons))
    print_missing(context.missing)
    configs = context.usable_plan.configs
    verdicts = prove(context, configs, lambda line: print(line, file=sys.stderr, flush=True), options.fresh)
    console = Console(highlight=False)
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        console.print(_table(model, [verdict for verdict in verdicts if verdict.model == model]))
    return 0 if verdicts and not context.missing and all(verdict.state == PROVEN for verdict in verdicts) else 1


# Headings for the checks of analyse/parity.py, in their order, short enough for 80 columns. The first one covers two
# counts, parameters and multiply-adds.
_HEADINGS = (
    "counts",
    "start\nf64",
    "logits\nf64",
    "losses\nf64",
    "moves\nf64",
    "logits\nf32",
    "loss\nf32",
)


def _table(model: str, verdicts: Sequence[Verdict]) -> RenderableType:
    """Show a row for each framework and a column for each check, with the allowed differences."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{model}: relative differences from {verdicts[0].reference}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("framework", no_wrap=True, vertical="bottom")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    checks = _shown_checks(next((verdict.checks for verdict in verdicts if verdict.checks), ()))
    table.add_row("allowed", *(numbers.scientific(check.tolerance) for check in checks), "", style="dim")
    for verdict in verdicts:
        shown = _shown_checks(verdict.checks)
        cells = [Text(numbers.scientific(c.difference), style="" if c.ok else "bold red") for c in shown]
        state = Text(verdict.state, style="green" if verdict.state == PROVEN else "bold red")
        table.add_row(f"{verdict.framework} {verdict.layout}", *(cells or [Text("")] * len(_HEADINGS)), state)
    doubts = [Text(f"{v.framework}: {v.warning}", style="red") for v in verdicts if v.warning]
    return Group(table, *doubts, Text(""))


def _shown_checks(checks: Sequence[Check]) -> Sequence[Check]:
    """Return the worse of the two counts, then all other checks."""
    return [max(checks[:2], key=lambda check: check.difference or 0.0), *checks[2:]] if checks else ()
