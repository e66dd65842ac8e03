"""``trainscale plan``: what a run would do, in what order, about how long. Runs nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..launch.inspection.cluster import connect_cluster
from ..launch.launchers.inside_mpi import InsideMpiLauncher, run_once_inside_mpi
from ..launch.launchers.target import find_target
from ..launch.trial.placement import slots_of
from ..run.identity import choose_directory, make_spec
from ..run.submission.plan import directory_settings, plan_for_nodes, should_submit
from ..spec.config import AUTO, Config, Trial
from ..spec.experiment import Experiment
from ..spec.placement import Slot, count_hosts
from ..spec.plan import Plan, make_plan
from .parser import Parser, add_experiment, read_experiment
from .run import settings_of_job
from .wording import time_words


def main(words: list[str]) -> int:
    return run_once_inside_mpi(["plan", *words], lambda company: _main(words, company))


def _main(words: list[str], company: InsideMpiLauncher | None) -> int:
    from rich.console import Console

    parser = Parser("plan", "Say what a run would do, in what order, and about how long. Runs nothing, writes nothing.")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where results would go (default: runs/NAME)")
    add_experiment(parser)
    options = parser.read(words)
    experiment = read_experiment(options, settings_of_job)
    if should_submit(experiment):
        plan = plan_for_nodes(experiment)
        spec = directory_settings(experiment)
    else:
        plan = _plan_here(experiment, company)
        spec = make_spec(plan)
    console = Console(highlight=False)
    console.print(_points(plan))
    if len(plan.available.hosts) > 1:
        console.print(_seating(plan))
    console.print(_order(plan), soft_wrap=True)
    console.print(f"results would go to {choose_directory(options.output, False, plan, spec)}/", soft_wrap=True)
    return 0


def _plan_here(experiment: Experiment, company: InsideMpiLauncher | None) -> Plan:
    place = find_target(experiment, mpi_hosts=company.hosts() if company else ())
    reached = connect_cluster(place, experiment, {}, company.using(place.access) if company else None)
    try:
        return make_plan(experiment, reached.supply)
    finally:
        reached.launcher.close()


def _points(plan: Plan) -> object:
    from rich.table import Table

    several = len(set(plan.experiment.work.frameworks)) > 1
    hosts = len(plan.available.hosts) > 1
    table = Table(title=f"on {plan.available.description}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in (*(("framework",) if several else ()), "model", "strategy"):
        table.add_column(name, no_wrap=True)
    for name in ("devices", *(("hosts",) if hosts else ()), "batch/dev.", "global", "a trial"):
        table.add_column(name, justify="right", no_wrap=True)
    if not hosts:
        table.add_column(f"on {_kind(plan)}")
    for config, n in plan.points:
        known = f"~{time_words(plan.trial_seconds(config, n))}" if config.batch != AUTO else "by batch"
        estimate = known if plan.experiment.measurement.budget is None else "by budget"
        table.add_row(
            *((config.framework,) if several else ()), config.model, config.strategy_label, str(n),
            *((str(count_hosts(config, n, plan.available)),) if hosts else ()),
            *_batches(config, n), estimate,
            *(() if hosts else (_on_host(*_seated(plan, config, n)),)),
        )  # fmt: skip
    return table


def _batches(config: Config, n: int) -> tuple[str, str]:
    """Per device and global."""
    return ("auto", "auto") if config.batch == AUTO else (str(config.batch_per_device(n)), str(config.global_batch(n)))


def _seating(plan: Plan) -> object:
    """Who goes where on several hosts. That is the same for every network of a strategy, so it is said once."""
    from rich.table import Table

    title = f"who goes where, by {_kind(plan)}"
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    said = {(config.strategy_label, n): _on_hosts(*_seated(plan, config, n)) for config, n in plan.points}
    before = ""
    for (strategy, n), words in said.items():
        table.add_row(strategy if strategy != before else "", str(n), words)
        before = strategy
    return table


def _kind(plan: Plan) -> str:
    return "core" if plan.available.kind == "cpu" else "GPU"


def _seated(plan: Plan, config: Config, n: int) -> tuple[list[Slot], list[Slot]]:
    """Workers and servers."""
    found = slots_of(Trial(config, n, 0), plan.available)
    return found[:n], found[n : n + config.servers_on(len({seat.host.name for seat in found}))]


def _on_host(workers: Sequence[Slot], servers: Sequence[Slot]) -> str:
    """«0 1» for two workers, «0 1, servers 0» with a server beside the first."""
    beside = f", {_role('server', servers)}" if servers else ""
    return " ".join(_devices(workers)) + beside


def _on_hosts(workers: Sequence[Slot], servers: Sequence[Slot]) -> str:
    """A line for each host, and one for all that carry the same."""
    by_words: dict[str, list[str]] = {}
    for host in dict.fromkeys(seat.host.name for seat in (*workers, *servers)):
        groups = [("worker", workers), ("server", servers)]
        there = [(role, [seat for seat in seats if seat.host.name == host]) for role, seats in groups]
        by_words.setdefault(", ".join(_role(role, seats) for role, seats in there if seats), []).append(host)
    return "\n".join(f"{_names(hosts)}: {words}" for words, hosts in by_words.items())


def _role(name: str, seats: Sequence[Slot]) -> str:
    """«workers 0 1», «workers 0-7», «2 servers» where the system places them."""
    names = _devices(seats)
    name += "s" if len(seats) > 1 else ""
    return " ".join([name, *names]) if all(names) else f"{len(names)} {name}"


def _devices(seats: Sequence[Slot]) -> list[str]:
    """Their names; a row of neighbours is one."""
    names = [str(one.device.index) if one.device.kind == "cuda" else _cores(one.device.cores) for one in seats]
    numbers = [int(name) for name in names if name.isdigit()]
    if len(names) > 2 and len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[0] + len(names))):
        return [f"{names[0]}-{names[-1]}"]
    return names


def _names(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) < 4 else f"{hosts[0]} … {hosts[-1]}, {len(hosts)} hosts"


def _cores(cores: tuple[int, ...]) -> str:
    return f"{cores[0]}-{cores[-1]}" if len(cores) > 1 else "".join(map(str, cores))


def _order(plan: Plan) -> str:
    searched = sum(config.batch == AUTO for config in plan.configs)
    if not searched:
        return _rounds(plan)
    batches = "the largest batch that fits is" if searched == 1 else f"{searched} largest batches that fit are"
    return f"first {batches} searched, by short trials on one device; then {_rounds(plan)}"


def _rounds(plan: Plan) -> str:
    points = f"{len(plan.points)} point{'s' if len(plan.points) != 1 else ''}"
    measurement, training = plan.experiment.measurement, plan.experiment.training
    if measurement.budget is not None:
        return (
            f"{points} within {time_words(measurement.budget)}: every point twice, then the one with"
            f" the widest interval, until all are within ±1 %;"
            f" at most {measurement.warmup} + {measurement.steps} steps a trial"
        )
    if training.epochs:
        least = "at most " if training.until_accuracy is not None else ""
        each = f"{least}{training.epochs} epoch{'s' if training.epochs != 1 else ''}"
    else:
        each = f"{measurement.warmup} + {measurement.steps} steps"
    return (
        f"{measurement.repeats} round{'s' if measurement.repeats != 1 else ''} over {points}, every other one"
        f" backwards, {each} a trial: {len(plan.trials())} trials, very roughly {time_words(plan.seconds)}"
    )
