"""``trainscale parity``: prove that frameworks train the same network, or show where they differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.devices import supply
from ..cluster.machine import look
from ..errors import InputError
from ..launch.pythons import choose
from ..record.parity import PROVEN, Verdict
from ..report import numbers
from ..run import parity
from ..spec.plan import make_plan
from .parser import Parser, add_experiment, read_experiment
from .preflight import preflight

if TYPE_CHECKING:
    from rich.console import RenderableType

_SETTINGS = ("models", "frameworks", "image_size", "classes", "layout", "seed", "device", "python")


def main(words: list[str]) -> int:
    from rich.console import Console

    parser = Parser(
        "parity",
        "Prove that frameworks train the same network: counts, initial weights, logits, and the losses and weights of"
        " three steps in float64. The first framework is the reference. Exit code 0 when all are proven.",
    )
    parser.add_argument("--fresh", action="store_true", help="compute anew, even what is remembered")
    add_experiment(parser, _SETTINGS)
    options = parser.read(words)
    experiment = read_experiment(options)
    plan = make_plan(experiment, supply(look(), experiment))
    if not parity.subjects(plan.configs):
        raise InputError(
            f"frameworks {', '.join(experiment.frameworks)}: nothing to compare; valid: two frameworks or more"
        )
    pythons = choose((config.framework for config in plan.configs), dict(experiment.python or ()))
    facts, missing = preflight(plan, pythons)
    asked = parity.Asked(
        pythons,
        {name: found["versions"] for name, found in facts.items()},
        plan.supply,
        experiment.seed,
        options.fresh,
    )
    configs = [config for config in plan.configs if config.framework not in missing]
    verdicts = parity.prove(configs, asked, lambda text: print(text, file=sys.stderr, flush=True))
    console = Console(highlight=False)
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        console.print(_table(model, [verdict for verdict in verdicts if verdict.model == model]))
    return 0 if verdicts and not missing and all(verdict.state == PROVEN for verdict in verdicts) else 1


def _table(model: str, verdicts: Sequence[Verdict]) -> RenderableType:
    """A row for each check, a column for each framework: differences from the reference, and what is allowed."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{model}, against {verdicts[0].reference}", title_justify="left", box=None,
                  padding=(0, 2, 0, 0))  # fmt: skip
    table.add_column("relative difference", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    for verdict in verdicts:
        table.add_column(f"{verdict.framework}\n{verdict.layout}", justify="right")
    names = next((verdict.checks for verdict in verdicts if verdict.checks), ())
    for number, check in enumerate(names):
        cells = []
        for verdict in verdicts:
            own = verdict.checks[number] if verdict.checks else None
            style = "" if own and own.ok else "bold red"
            cells.append(Text(numbers.scientific(own.difference if own else None), style=style))
        table.add_row(check.name, numbers.scientific(check.tolerance), *cells)
    states = [Text(v.state, style="green" if v.state == PROVEN else "bold red") for v in verdicts]
    table.add_row("", "", *states)
    doubts = [Text(f"{v.framework}: {v.words}", style="red") for v in verdicts if v.words]
    return Group(table, *doubts, Text(""))
