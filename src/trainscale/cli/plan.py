"""``trainscale plan``: show what a run would do, in what order, and about how long it would take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..analyse.race import count_most_rounds
from ..analyse.titles import make_strategy_labels
from ..launch.inspection.hosts import connect_cluster
from ..launch.launchers.inside_mpi import InsideMpiLauncher, run_once_inside_mpi
from ..launch.launchers.target import find_target
from ..launch.trial.jobs import place_trial
from ..measure.context import choose_directory, make_short_measure, make_spec
from ..measure.expectations import estimate_seconds
from ..measure.order import count_most_trials
from ..measure.submission import plan_for_nodes, select_directory_settings, should_submit
from ..report.numbers import format_rough_duration
from ..spec.config import AUTO, STRONG, WEAK, Config, Trial
from ..spec.devices import Slot, count_hosts
from ..spec.experiment import Experiment
from ..spec.groups import MeasurementSettings
from ..spec.plan import LEAST_ROUNDS, Plan, make_plan
from .parser import Parser, add_experiment, read_experiment
from .run import read_job_settings

if TYPE_CHECKING:
    from rich.console import RenderableType


def main(argv: list[str]) -> int:
    return run_once_inside_mpi(["plan", *argv], lambda mpi: _main(argv, mpi))


def _main(argv: list[str], mpi: InsideMpiLauncher | None) -> int:
    from rich.console import Console

    parser = Parser(
        "plan",
        "Show what a run would do, in what order, and about how long it would take. Nothing is run or written.",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the directory for the results (default: runs/NAME)"
    )
    add_experiment(parser)
    options = parser.read(argv)
    experiment = read_experiment(options, read_job_settings)
    if should_submit(experiment):
        plan = plan_for_nodes(experiment)
        spec = select_directory_settings(experiment)
    else:
        plan = _plan_here(experiment, mpi)
        spec = make_spec(plan)
    console = Console(highlight=False)
    console.print(_make_points_table(plan))
    if len(plan.available.hosts) > 1:
        console.print(_make_placement_table(plan))
    console.print(_describe_order(plan), soft_wrap=True)
    console.print(f"results would go to {choose_directory(options.output, False, plan, spec)}/", soft_wrap=True)
    return 0


def _plan_here(experiment: Experiment, mpi: InsideMpiLauncher | None) -> Plan:
    target = find_target(experiment, mpi_hosts=mpi.hosts() if mpi else ())
    cluster = connect_cluster(target, experiment, {}, mpi.use_access(target.access) if mpi else None)
    try:
        return make_plan(experiment, cluster.supply)
    finally:
        cluster.launcher.close()


def _make_points_table(plan: Plan) -> RenderableType:
    from rich.table import Table

    has_frameworks = len(set(plan.experiment.work.frameworks)) > 1
    has_hosts = len(plan.available.hosts) > 1
    table = Table(title=f"on {plan.available.description}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in (*(("framework",) if has_frameworks else ()), "model", "strategy"):
        table.add_column(name, no_wrap=True)
    for name in ("devices", *(("hosts",) if has_hosts else ()), "batch/dev.", "global", "a trial"):
        table.add_column(name, justify="right", no_wrap=True)
    if not has_hosts:
        table.add_column(f"on {_name_device_kind(plan)}")
    labels = make_strategy_labels(plan.configs)
    for config, n in plan.points:
        table.add_row(
            *((config.framework,) if has_frameworks else ()), config.model, labels[config], str(n),
            *((str(count_hosts(config, n, plan.available)),) if has_hosts else ()),
            *_format_batches(config, n), _format_estimate(plan, config, n),
            *(() if has_hosts else (_describe_one_host(*_place_processes(plan, config, n)),)),
        )  # fmt: skip
    return table


def _format_batches(config: Config, n: int) -> tuple[str, str]:
    """Return the batch per device and the global batch."""
    return ("auto", "auto") if config.batch == AUTO else (str(config.batch_per_device(n)), str(config.global_batch(n)))


def _format_estimate(plan: Plan, config: Config, n: int) -> str:
    if plan.experiment.measurement.budget is not None:
        return "by budget"
    return "by batch" if config.batch == AUTO else f"~{format_rough_duration(plan.estimate_seconds(config, n))}"


def _make_placement_table(plan: Plan) -> RenderableType:
    """Return a table of the processes by host. All networks of a strategy are placed alike, so they share a row."""
    from rich.table import Table

    title = f"placement of processes, by {_name_device_kind(plan)}"
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    placements = {
        (config.strategy_label, n): _describe_hosts(*_place_processes(plan, config, n)) for config, n in plan.points
    }
    previous = ""
    for (strategy, n), placement in placements.items():
        table.add_row(strategy if strategy != previous else "", str(n), placement)
        previous = strategy
    return table


def _name_device_kind(plan: Plan) -> str:
    return "core" if plan.available.kind == "cpu" else "GPU"


def _place_processes(plan: Plan, config: Config, n: int) -> tuple[list[Slot], list[Slot]]:
    """Return the slots of the workers and those of the servers."""
    slots = place_trial(Trial(config, n, 0), plan.available)
    return slots[:n], slots[n : n + config.count_servers(len({slot.host.name for slot in slots}))]


def _describe_one_host(workers: Sequence[Slot], servers: Sequence[Slot]) -> str:
    """Return «0 1» for two workers, «0 1, servers 0» with a server beside the first."""
    beside = f", {_describe_role('server', servers)}" if servers else ""
    return " ".join(_name_devices(workers)) + beside


def _describe_hosts(workers: Sequence[Slot], servers: Sequence[Slot]) -> str:
    """Return a line for each host. Hosts with the same processes share a line."""
    hosts_by_load: dict[str, list[str]] = {}
    for host in dict.fromkeys(slot.host.name for slot in (*workers, *servers)):
        roles = [("worker", workers), ("server", servers)]
        here = [(role, [slot for slot in slots if slot.host.name == host]) for role, slots in roles]
        hosts_by_load.setdefault(", ".join(_describe_role(role, slots) for role, slots in here if slots), []).append(
            host
        )
    return "\n".join(f"{_name_hosts(hosts)}: {load}" for load, hosts in hosts_by_load.items())


def _describe_role(name: str, slots: Sequence[Slot]) -> str:
    """Return «workers 0 1», «workers 0-7», or «2 servers» where the operating system chooses their cores."""
    names = _name_devices(slots)
    name += "s" if len(slots) > 1 else ""
    return " ".join([name, *names]) if all(names) else f"{len(names)} {name}"


def _name_devices(slots: Sequence[Slot]) -> list[str]:
    """Return the names of the devices; consecutive numbers become a range."""
    names = [
        str(slot.device.index) if slot.device.kind == "cuda" else _format_cores(slot.device.cores) for slot in slots
    ]
    numbers = [int(name) for name in names if name.isdigit()]
    if len(names) > 2 and len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[0] + len(names))):
        return [f"{names[0]}-{names[-1]}"]
    return names


def _name_hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) < 4 else f"{hosts[0]} … {hosts[-1]}, {len(hosts)} hosts"


def _format_cores(cores: tuple[int, ...]) -> str:
    return f"{cores[0]}-{cores[-1]}" if len(cores) > 1 else "".join(map(str, cores))


def _describe_order(plan: Plan) -> str:
    searches = sum(config.batch == AUTO for config in plan.configs)
    if not searches:
        return _describe_rounds(plan) + _describe_further(plan) + _describe_expectations(plan)
    batches = "the largest batch that fits is" if searches == 1 else f"{searches} largest batches that fit are"
    return f"first {batches} searched, by short trials on one device; then {_describe_rounds(plan)}" + (
        _describe_further(plan)
    )


def _describe_further(plan: Plan) -> str:
    """Say what is measured beside the ladder, and how much longer that takes."""
    if not plan.further_points:
        return ""
    first = plan.further_points[0]
    counts = ", ".join(map(str, sorted({point.devices for point in plan.further_points})))
    length = "" if first.measure.seconds is not None else f" of {first.measure.warmup} + {first.measure.steps} steps"
    trials = sum(point.repeats for point in plan.further_points)
    share = plan.further_seconds / plan.ladder_seconds
    return (
        f"\nfor trainscale explain, in between: independent on {counts} device{'s' if counts != '1' else ''},"
        f" {first.repeats} repeats{length}: {trials} trials, very roughly {format_rough_duration(plan.further_seconds)}"
        f" ({share:.0%} more); exchanges alone and other batches at the end of trials"
    )


def _describe_expectations(plan: Plan) -> str:
    """Say how long it takes to compute what the first steps must be, where that is not known yet."""
    seconds = estimate_seconds(plan) if plan.experiment.safety.witness else 0.0
    if seconds < 1:
        return ""
    duration = format_rough_duration(seconds)
    return f"\nbefore, once: what the first steps of every trial must compute, very roughly {duration}"


def _describe_rounds(plan: Plan) -> str:
    points = f"{len(plan.points)} point{'s' if len(plan.points) != 1 else ''}"
    measurement, training = plan.experiment.measurement, plan.experiment.training
    if measurement.is_sequential:
        return f"{points}{_describe_rule(measurement)}{_describe_first_trials(plan)}"
    if measurement.search:
        return _describe_search(plan)
    if training.epochs:
        limit = "at most " if training.until_accuracy is not None else ""
        length = f"{limit}{training.epochs} epoch{'s' if training.epochs != 1 else ''}"
    else:
        length = f"{measurement.warmup} + {measurement.steps} steps"
    return _describe_study(plan) + (
        f"{measurement.repeats} round{'s' if measurement.repeats != 1 else ''} over {points}, every other one"
        f" backwards, {length} a trial: {measurement.repeats * len(plan.points)} trials, very roughly"
        f" {format_rough_duration(plan.ladder_seconds)}"
    )


def _describe_study(plan: Plan) -> str:
    """Say what a study measures: the two ladders and their batches."""
    if not plan.experiment.measurement.study:
        return ""
    lines = ["a study of weak and strong scaling:"]
    titles = {WEAK: "weak: batch per device fixed", STRONG: "strong: batch of all devices fixed"}
    for scaling, title in titles.items():
        batches = [f"{config.model} {config.batch}" for config in plan.configs if config.scaling == scaling]
        lines.append(f"  {title}: {', '.join(dict.fromkeys(batches))}")
    return "\n".join([*lines, "trainscale study makes a text for a proposal of it", ""])


def _describe_rule(measurement: MeasurementSettings) -> str:
    """Say how the results decide what is repeated."""
    limit = "" if measurement.budget is None else f" within {format_rough_duration(measurement.budget)}"
    length = f"at most {measurement.warmup} + {measurement.steps} steps a trial"
    if measurement.until_interval is None:
        then = "then the one with the widest interval, until all are within ±1 %"
    else:
        target = f"{measurement.until_interval * 100:g} %"
        then = f"then where a device-second narrows most, until all speeds and efficiencies are within ±{target}"
    return f"{limit}: every point {LEAST_ROUNDS} times, {then}; {length}"


def _describe_first_trials(plan: Plan) -> str:
    """Say how long the trials take that no interval can save. How many follow depends on the noise."""
    if plan.experiment.measurement.budget is not None:
        return ""
    trials, duration = LEAST_ROUNDS * len(plan.points), format_rough_duration(plan.ladder_seconds)
    return f"\nthe first {trials} trials take very roughly {duration}; how many follow depends on the noise"


def _describe_search(plan: Plan) -> str:
    """Say what a search does, how much it can take at most, and how much measuring everything would take."""
    measurement, short = plan.experiment.measurement, make_short_measure(plan.experiment.measurement)
    most_short, most_full = count_most_trials(plan)
    rounds = count_most_rounds(measurement.repeats)
    return (
        f"a search: for each device count at most {rounds} rounds of short trials ({short.warmup} + {short.steps}"
        f" steps) over the {len(plan.configs)} candidates, slower ones leave; then each winner {measurement.repeats}"
        f" times in full ({measurement.warmup} + {measurement.steps} steps), on one device too\n"
        f"at most {most_short} short trials and {most_full} in full, instead of {len(plan.list_trials())} in full;"
        " candidates that cannot fit are skipped by an estimate of their memory"
    )
