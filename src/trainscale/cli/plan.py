"""``trainscale plan``: what a run would do, in what order, about how long. Runs nothing, writes nothing."""

from __future__ import annotations

from pathlib import Path

from ..cluster.where import find_place
from ..launch.placement import seats_of
from ..launch.reach import reach
from ..run.conduct import spec_of
from ..spec.config import Trial
from ..spec.plan import Plan, make_plan
from ..worker.job import Device
from .parser import Parser, add_experiment, read_experiment
from .run import choose_directory
from .words import time_words


def main(words: list[str]) -> int:
    from rich.console import Console

    parser = Parser("plan", "Say what a run would do, in what order, and about how long. Runs nothing, writes nothing.")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where results would go (default: runs/NAME)")
    add_experiment(parser)
    options = parser.read(words)
    experiment = read_experiment(options)
    reached = reach(find_place(experiment), experiment, {})
    try:
        plan = make_plan(experiment, reached.supply)
    finally:
        reached.launcher.close()
    console = Console(highlight=False)
    console.print(_points(plan))
    console.print(_order(plan), soft_wrap=True)
    console.print(
        f"results would go to {choose_directory(options.output, False, plan, spec_of(plan))}/", soft_wrap=True
    )
    return 0


def _points(plan: Plan) -> object:
    from rich.table import Table

    several = len(set(plan.experiment.frameworks)) > 1
    table = Table(title=f"on {plan.supply.words}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in (*(("framework",) if several else ()), "model", "strategy"):
        table.add_column(name, no_wrap=True)
    for name in ("devices", "batch/dev.", "global", "a trial"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("on core" if plan.supply.kind == "cpu" else "on GPU")
    for config, n in plan.points:
        estimate = f"~{time_words(plan.trial_seconds(config, n))}" if plan.experiment.budget is None else "by budget"
        table.add_row(
            *((config.framework,) if several else ()), config.model, config.strategy_label, str(n),
            str(config.batch_per_device(n)), str(config.global_batch(n)), estimate, _where(plan, Trial(config, n, 0)),
        )  # fmt: skip
    return table


def _where(plan: Plan, trial: Trial) -> str:
    """Who goes where: «0 1» for two workers, «0 1, servers 0» with a server beside the first; by host if there are
    several.
    """
    found = seats_of(trial, plan.supply)[: trial.devices + trial.config.servers]
    hosts = list(dict.fromkeys(seat.site.host for seat in found))
    parts = []
    for host in hosts:
        workers = [_name(s.device) for s in found[: trial.devices] if s.site.host == host]
        servers = [_name(s.device) for s in found[trial.devices :] if s.site.host == host]
        words = [" ".join(workers)] if workers else []
        words += [f"servers {' '.join(servers)}"] if servers else []
        parts.append((f"{host}: " if len(plan.supply.sites) > 1 else "") + ", ".join(words))
    return "; ".join(parts)


def _name(device: Device) -> str:
    return str(device.index) if device.kind == "cuda" else _cores(device.cores) or "any"


def _cores(cores: tuple[int, ...]) -> str:
    return f"{cores[0]}-{cores[-1]}" if len(cores) > 1 else "".join(map(str, cores))


def _order(plan: Plan) -> str:
    experiment = plan.experiment
    points = f"{len(plan.points)} point{'s' if len(plan.points) != 1 else ''}"
    if experiment.budget is not None:
        return (
            f"{points} within {time_words(experiment.budget)}: every point twice, then the one with"
            f" the widest interval, until all are within ±1 %;"
            f" at most {experiment.warmup} + {experiment.steps} steps a trial"
        )
    return (
        f"{experiment.repeats} rounds over {points}, every other one backwards,"
        f" {experiment.warmup} + {experiment.steps} steps a trial: {len(plan.trials())} trials,"
        f" very roughly {time_words(plan.seconds)}"
    )
