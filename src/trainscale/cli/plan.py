"""``trainscale plan``: show what a run would do, in what order, and about how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from ..analyse.race import count_most_rounds
from ..analyse.titles import make_strategy_labels
from ..launch.hosts import connect_cluster
from ..launch.launchers.target import make_launcher, run_once_inside_mpi
from ..launch.trial.trial import place_trial
from ..measure.context import choose_directory, make_short_measure, make_spec, should_submit
from ..measure.expectations import estimate_seconds
from ..measure.order import count_most_trials
from ..measure.submission import plan_for_nodes, select_directory_settings
from ..report.documents import load_template, split_paragraphs
from ..report.numbers import format_count, format_rough_duration
from ..spec.config import AUTO, STRONG, WEAK, Config, Trial
from ..spec.devices import Slot, count_hosts
from ..spec.plan import LEAST_ROUNDS, Plan, make_plan
from .parser import Parser, add_experiment, read_experiment
from .run import read_job_settings
from .tables import make_table, number, text

if TYPE_CHECKING:
    from ..launch.launchers.inside_mpi import InsideMpiLauncher


def main(argv: list[str]) -> int:
    return run_once_inside_mpi(["plan", *argv], lambda mpi: _main(argv, mpi))


def _main(argv: list[str], mpi: InsideMpiLauncher | None) -> int:
    parser = Parser("plan")
    add_experiment(parser)
    options = parser.read(argv)
    experiment = read_experiment(options, read_job_settings)
    if should_submit(experiment):
        plan = plan_for_nodes(experiment)
        spec = select_directory_settings(experiment)
    else:
        cluster = connect_cluster(make_launcher(experiment, mpi), experiment, {})
        try:
            plan = make_plan(experiment, cluster.supply)
        finally:
            cluster.launcher.close()
        spec = make_spec(plan)
    console = Console(highlight=False)
    console.print(_make_points_table(plan))
    if len(plan.available.hosts) > 1:
        console.print(_make_placement_table(plan))
    measurement, training = plan.experiment.measurement, plan.experiment.training
    searches = sum(config.batch == AUTO for config in plan.configs)
    steps = f"{measurement.warmup} + {measurement.steps} steps"
    if training.epochs and not measurement.is_sequential:
        limit = "at most " if training.until_accuracy is not None else ""
        steps = limit + format_count(training.epochs, "epoch")
    most_short, most_full = count_most_trials(plan) if measurement.search else (0, 0)
    batches: dict[str, dict[str, None]] = {WEAK: {}, STRONG: {}}
    for config in plan.configs:
        batches[config.scaling][f"{config.model} {config.batch}"] = None
    has_witness = plan.experiment.safety.witness and not searches
    filters = (("duration", format_rough_duration), ("plural", format_count))
    order = load_template(__package__, "order.j2", filters).render(
        plan=plan,
        measurement=measurement,
        points=format_count(len(plan.points), "point"),
        least_rounds=LEAST_ROUNDS,
        steps=steps,
        searches=searches,
        short=make_short_measure(measurement),
        rounds=count_most_rounds(measurement.repeats),
        most_short=most_short,
        most_full=most_full,
        weak=batches[WEAK],
        strong=batches[STRONG],
        further=plan.further_points,
        witness_seconds=estimate_seconds(plan) if has_witness else 0.0,
    )
    console.print("\n".join(split_paragraphs(order)).replace("\n- ", "\n  "), soft_wrap=True)
    directory = choose_directory(options.output, False, plan, spec)
    console.print(f"results would go to {directory}/", soft_wrap=True)
    return 0


def _make_points_table(plan: Plan) -> Table:
    has_frameworks = len(set(plan.experiment.work.frameworks)) > 1
    has_hosts = len(plan.available.hosts) > 1
    columns = [
        *([text("framework")] if has_frameworks else []),
        *map(text, ("model", "strategy")),
        *map(number, ("devices", *(["hosts"] if has_hosts else []), "batch/dev.", "global", "a trial")),
        *([] if has_hosts else [Column(f"on {_name_device_kind(plan)}")]),
    ]
    table = make_table(*columns, title=f"on {plan.available.description}")
    labels = make_strategy_labels(plan.configs)
    for config, n in plan.points:
        batches, seconds = ["auto", "auto"], "by batch"
        if config.batch != AUTO:
            batches = [str(config.batch_per_device(n)), str(config.global_batch(n))]
            seconds = f"~{format_rough_duration(plan.estimate_seconds(config, n))}"
        if plan.experiment.measurement.budget is not None:
            seconds = "by budget"
        cells = [config.framework] if has_frameworks else []
        cells += [config.model, labels[config], str(n)]
        if has_hosts:
            cells.append(str(count_hosts(config, n, plan.available)))
        cells += [*batches, seconds]
        if not has_hosts:
            workers, servers = _place_processes(plan, config, n)
            beside = f", {_describe_role('server', servers)}" if servers else ""
            cells.append(" ".join(_name_devices(workers)) + beside)
        table.add_row(*cells)
    return table


def _make_placement_table(plan: Plan) -> Table:
    """Networks of a strategy share a row; hosts with the same processes share a line."""
    title = f"placement of processes, by {_name_device_kind(plan)}"
    table = make_table(text(), number(""), Column(), title=title, show_header=False)
    previous = ""
    by_strategy = {(config.strategy_label, n): config for config, n in plan.points}
    for (strategy, n), config in by_strategy.items():
        workers, servers = _place_processes(plan, config, n)
        hosts_by_load: dict[str, list[str]] = {}
        for host in dict.fromkeys(slot.host.name for slot in (*workers, *servers)):
            roles = []
            for role, slots in (("worker", workers), ("server", servers)):
                if here := [slot for slot in slots if slot.host.name == host]:
                    roles.append(_describe_role(role, here))
            hosts_by_load.setdefault(", ".join(roles), []).append(host)
        lines = []
        for load, hosts in hosts_by_load.items():
            few, many = ", ".join(hosts), f"{hosts[0]} … {hosts[-1]}, {len(hosts)} hosts"
            names = few if len(hosts) < 4 else many
            lines.append(f"{names}: {load}")
        table.add_row(strategy if strategy != previous else "", str(n), "\n".join(lines))
        previous = strategy
    return table


def _name_device_kind(plan: Plan) -> str:
    return "core" if plan.available.kind == "cpu" else "GPU"


def _place_processes(plan: Plan, config: Config, n: int) -> tuple[list[Slot], list[Slot]]:
    """Return the slots of the workers and those of the servers."""
    slots = place_trial(Trial(config, n, 0), plan.available)
    return slots[:n], slots[n : n + config.count_servers(len({slot.host.name for slot in slots}))]


def _describe_role(name: str, slots: Sequence[Slot]) -> str:
    """Return ``workers 0 1``, ``workers 0-7``, or ``2 servers`` without cores of their own."""
    names = _name_devices(slots)
    name += "s" if len(slots) > 1 else ""
    return " ".join([name, *names]) if all(names) else f"{len(names)} {name}"


def _name_devices(slots: Sequence[Slot]) -> list[str]:
    names = []
    for slot in slots:
        cores = slot.device.cores
        several = f"{cores[0]}-{cores[-1]}" if len(cores) > 1 else "".join(map(str, cores))
        names.append(str(slot.device.index) if slot.device.kind == "cuda" else several)
    numbers = [int(name) for name in names if name.isdigit()]
    first = numbers[0] if numbers else 0
    if len(names) > 2 and numbers == [*range(first, first + len(names))]:
        return [f"{names[0]}-{names[-1]}"]
    return names
