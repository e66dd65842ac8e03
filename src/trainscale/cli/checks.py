"""``trainscale check``: this machine or hosts as a run would see them. ``trainscale parity``: frameworks compared."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..cluster.hosts import (
    choose_cores_per_device,
    describe_devices,
    find_devices,
    find_local_devices,
    get_machine,
    list_devices,
)
from ..errors import InputError, explain_unknown
from ..launch import plugins
from ..launch.hosts import GIVEN, HERE, Interpreter, choose_pythons, combine_probes, find_interpreter
from ..launch.launchers.base import Launcher
from ..launch.launchers.local import LocalLauncher
from ..launch.launchers.target import LAUNCHERS, list_plugin_setting_keys, make_launcher
from ..launch.survey import (
    Finding,
    Survey,
    compute_clock_offset,
    describe_host_devices,
    describe_hosts,
    find_problems,
    format_gigabits,
    format_milliseconds,
    group_framework_versions,
    survey,
)
from ..launch.trial.jobs import find_loopback_interface
from ..launch.worker_archive import build_archive
from ..measure.context import RunContext
from ..measure.measure import check_frameworks
from ..measure.parity import group_comparisons, prove
from ..record.parity import PROVEN, Check, Verdict
from ..report.numbers import format_count, format_decimal_size, format_gibibytes, format_scientific
from ..spec.devices import Host
from ..spec.experiment import Experiment
from ..spec.plan import make_plan
from ..worker.events import FrameworkFacts
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import Machine, read_machine
from ..worker.inspection.probe import ProbeRequest, run_probes
from ..worker.listening import find_free_ports
from ..worker.plugins import FRAMEWORK, LAUNCHER, MODEL
from .listings import print_broken_plugins
from .parser import Parser, add_experiment, read_experiment

_CHECK_SETTINGS = (
    "frameworks", "device", "launcher", "python", "hosts", "hosts_count", "remote_dir", "remote_python", "setup",
    "interface", "controller_address", "ssh_config", "forward_agent", "gpus_per_host", "cores_per_device", "nodes",
    "queue", "yarn", "ray_address", "timeout",
)  # fmt: skip
_PARITY_SETTINGS = ("models", "frameworks", "image_size", "classes", "layout", "seed", "device", "python")
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core while nothing of ours runs
_CONNECT_SECONDS = 5  # a host that is up answers at once


def check(argv: list[str]) -> int:
    parser = Parser("check")
    add_experiment(parser, (*_CHECK_SETTINGS, *list_plugin_setting_keys()))
    options = parser.read(argv)
    experiment = read_experiment(options)
    frameworks = [name.lower() for name in experiment.work.frameworks] if options.frameworks else []
    for name in frameworks:
        if name not in FRAMEWORKS:
            raise explain_unknown("framework", name, FRAMEWORKS)
    console, launcher = Console(highlight=False), make_launcher(experiment)
    if launcher.local:
        return _check_machine(console, dict(experiment.resources.python or ()), frameworks or [*FRAMEWORKS])
    return _check_hosts(console, launcher, experiment, frameworks)


def _check_machine(console: Console, given: dict[str, str], frameworks: Sequence[str]) -> int:
    with console.status("asking every framework") if console.is_terminal else nullcontext():
        machine = read_machine()  # before the frameworks make it busy
        interpreters = {name: find_interpreter(name, given) for name in frameworks}
        plugin_of = {name: FRAMEWORKS[name].plugin for name in frameworks}
        requests = [ProbeRequest(name, plugins=[plugin] if plugin else []) for name, plugin in plugin_of.items()]
        facts = run_probes({name: interpreter.python for name, interpreter in interpreters.items()}, requests)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _describe_machine(machine):
        table.add_row(name, Text(value))
    for name in frameworks:
        table.add_row(name, Text(_describe_framework(interpreters[name], facts[name])))
    console.print(table)
    for kind in (FRAMEWORK, MODEL, LAUNCHER):
        print_broken_plugins(console, plugins.list_broken_plugins(kind))
    return 0 if any(facts[name].is_available for name in frameworks) else 1


def _describe_machine(machine: Machine) -> list[tuple[str, str]]:
    shared = f", {machine.threads_per_core} threads share a core" if machine.threads_per_core > 1 else ""
    slots = list_devices(machine, "cpu", choose_cores_per_device(machine), 1)
    memory = f"{format_gibibytes(machine.memory_bytes)}, {format_gibibytes(machine.memory_available_bytes)} free"
    gpus = [
        (f"GPU {gpu.index}", f"{gpu.name}, {format_gibibytes(gpu.memory_bytes)}, driver {gpu.driver}")
        for gpu in machine.gpus
    ]
    interface = find_loopback_interface() or "none"
    try:
        ports = f"free on loopback ({interface}), for example {find_free_ports(8)[0]}"
    except OSError as error:
        ports = f"no free port on the loopback interface ({interface}): {error}"
    pressure = "unknown" if machine.pressure is None else f"{machine.pressure:.1f} %"
    is_busy = machine.pressure is not None and machine.pressure > _BUSY_PRESSURE
    busy = ": busy, results will be noisy" if is_busy else ""
    return [
        ("processor", f"{machine.cpu}, {len(machine.cores)} usable cores{shared}"),
        ("CPU devices", describe_devices(machine, slots)),
        ("memory", memory),
        *(gpus or [("GPUs", f"none ({machine.gpu_note})")]),
        ("disk here", f"{format_gibibytes(shutil.disk_usage(Path.cwd()).free)} free"),
        ("ports", ports),
        ("load", f"{machine.load:.2f} runnable, {pressure} of time something waits for a core{busy}"),
        ("launchers", ", ".join(LAUNCHERS)),
        ("python", f"{sys.version.split()[0]} ({sys.executable})"),
    ]


def _describe_framework(interpreter: Interpreter, facts: FrameworkFacts) -> str:
    source = interpreter.source
    where = f"{source} ({interpreter.python})" if source == GIVEN else source
    if facts.is_available:
        gpus = len(facts.gpus)
        device = f"sees {format_count(gpus, 'GPU')}" if gpus else "CPU only"
        return f"{facts.version}, {device}, {where}"
    lines = [f"missing: {facts.reason}"]
    if source != HERE:  # this Python is only the last resort: the reason says enough
        lines.append(f"looked in: {where}")
    get, environment = facts.install_command, interpreter.environment
    if environment and not get:
        get = f"trainscale env remove {environment}, then env create {environment}"
    if get:
        lines.append(f"get it with: {get}")
    return "\n".join(lines)


def _check_hosts(console: Console, launcher: Launcher, experiment: Experiment, frameworks: Sequence[str]) -> int:
    """Return 0 if a run could use all hosts. ``frameworks`` are imported there, too."""
    given = dict(experiment.resources.python or ())
    pythons = choose_pythons(frameworks or FRAMEWORKS, given)
    launcher.access = replace(launcher.access, connect_seconds=_CONNECT_SECONDS)
    try:
        with console.status("asking the hosts") if console.is_terminal else nullcontext():
            result = survey(launcher, pythons, [ProbeRequest(name) for name in frameworks])
    finally:
        launcher.close()
    problems, devices = find_problems(result, given), None
    try:
        devices = find_devices(result.usable, experiment) if result.usable else None
    except InputError as error:  # a run would refuse these hosts
        problems.append(Finding(str(error)))
    facts = {host.name: host.facts for host in result.usable if host.facts}
    for name in frameworks if devices else ():
        answer = combine_probes(facts, name)
        if not answer.is_available:
            remedy = f"get it with: {answer.install_command}" if answer.install_command else ""
            problems.append(Finding(f"{name}: {answer.reason}", remedy))

    usable = f"{len(result.usable)} of {format_count(len(result.hosts), 'host')} can be used"
    console.print(_make_hosts_table(result))
    console.print(f"{usable}: {devices.description}" if devices else usable, markup=False)
    measured = [
        (link.bits_per_second, link.round_trip_seconds, link.name)
        for link in result.links
        if link.bits_per_second and link.round_trip_seconds
    ]
    if measured:
        bits, round_trip, pair = min(measured)
        speed = f"{format_gigabits(bits)} Gbit/s, {format_milliseconds(round_trip)} ms"
        line = f"Gbit/s to the next host, ms of a round trip; the slowest pair is {pair}: {speed}"
        console.print(line, markup=False)
    if result.usable:
        console.print()
        console.print(_make_frameworks_table(result))
    console.print()
    console.print(_make_problems_table(problems) if problems else "nothing is wrong")
    return 1 if any(finding.is_serious for finding in problems) else 0


def _make_hosts_table(result: Survey) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("host", overflow="fold")
    table.add_column("python", no_wrap=True)
    table.add_column("devices")
    for name in ("memory", "disk", "clock", *(("Gbit/s", "ms") if len(result.hosts) > 1 else ())):
        table.add_column(name, justify="right", no_wrap=True)
    usable = {host.name: host for host in result.usable}
    for name in (host.name for host in result.hosts):
        if name in usable:
            cells = _format_cells(usable[name], result)
            table.add_row(Text("✓", style="green"), Text(name), *map(Text, cells))
        else:
            reason = Text(result.errors[name].why.partition(":")[0], style="red")
            table.add_row(Text("✗", style="red"), Text(name), "", reason)
    return table


def _format_cells(host: Host, result: Survey) -> list[str]:
    assert host.facts is not None
    facts, offset = host.facts, compute_clock_offset(host)
    link = next((link for link in result.links if link.sender == host.name), None)
    bits, round_trip = (link.bits_per_second, link.round_trip_seconds) if link else (None, None)
    free = facts.disk_free_bytes
    return [
        facts.python_version,
        describe_host_devices(host),
        format_gibibytes(get_machine(host).memory_available_bytes),
        "?" if free is None else format_decimal_size(free),
        "?" if offset is None else f"{offset:+.1f} s" if abs(offset) >= 0.05 else "0 s",
        "–" if bits is None else format_gigabits(bits),
        "–" if round_trip is None else format_milliseconds(round_trip),
    ][: 7 if len(result.hosts) > 1 else 5]


def _make_frameworks_table(result: Survey) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    usable = result.usable
    for name, by_version in group_framework_versions(usable).items():
        for version, hosts in by_version.items():
            if version or len(by_version) > 1:
                text = Text(version or "missing", style="" if version else "red")
                grid.add_row(name, text, describe_hosts(hosts, len(usable)))
    copied = sum(bool(host.facts and host.facts.worker_copied) for host in usable)
    note = f"copied to {copied} just now" if copied else "was there already"
    grid.add_row("worker", build_archive().digest[:8], note)
    return grid


def _make_problems_table(problems: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in sorted(problems, key=lambda problem: not problem.is_serious):
        mark = Text("✗", style="red") if finding.is_serious else Text("⚑", style="yellow")
        grid.add_row(mark, Text(finding.problem))
        if finding.remedy:
            grid.add_row("", Text(f"→ {finding.remedy}", style="dim"))
    return grid


def parity(argv: list[str]) -> int:
    parser = Parser(
        "parity",
        "Prove that frameworks train the same network, in counts, weights, logits and three steps of training."
        " The first framework is the reference. The exit code is 0 if all are proven.",
    )
    parser.add_argument("--fresh", action="store_true", help="compute cached numbers again")
    add_experiment(parser, _PARITY_SETTINGS)
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
        console.print(_make_parity_table(model, [verdict for verdict in verdicts if verdict.model == model]))
    return 0 if verdicts and not context.missing and all(verdict.state == PROVEN for verdict in verdicts) else 1


# Headings that fit into 80 columns, and the checks of analyse/parity.py.
_COLUMNS = {
    "start\nf64": "initial weights",
    "logits\nf64": "logits, float64",
    "moves\nf64": "weights after 3 steps, float64",
    "logits\nf32": "logits, float32",
    "moves\nf32": "closest tensor after the first step, float32",
}
_COUNTS = ("parameters", "multiply-adds")


def _make_parity_table(model: str, verdicts: Sequence[Verdict]) -> RenderableType:
    title = f"{model}: relative differences from {verdicts[0].reference}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("framework", no_wrap=True, vertical="bottom")
    for heading in ("counts", *_COLUMNS, "others"):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    table.add_column("", no_wrap=True)
    checks = next((verdict.checks for verdict in verdicts if verdict.checks), ())
    allowed = [format_scientific(check.tolerance) for check in _select_shown_checks(checks)]
    table.add_row("allowed", *allowed, "", style="dim")
    for verdict in verdicts:
        shown = _select_shown_checks(verdict.checks)
        cells = [Text(format_scientific(c.difference), style="" if c.ok else "bold red") for c in shown]
        if shown:
            columns = {*_COUNTS, *_COLUMNS.values()}
            failed = sum(not check.ok for check in verdict.checks if check.name not in columns)
            cells.append(Text(f"{failed} bad", style="bold red") if failed else Text("ok"))
        else:
            cells = [Text("")] * (len(_COLUMNS) + 2)
        state = Text(verdict.state, style="green" if verdict.state == PROVEN else "bold red")
        table.add_row(f"{verdict.framework} {verdict.layout}", *cells, state)
    doubts = [Text(f"{v.framework}: {v.warning}", style="red") for v in verdicts if v.warning]
    return Group(table, *doubts, Text(""))


def _select_shown_checks(checks: Sequence[Check]) -> Sequence[Check]:
    if not checks:
        return ()
    by_name = {check.name: check for check in checks}
    counts = max((by_name[name] for name in _COUNTS), key=lambda check: check.difference or 0.0)
    return [counts, *(by_name[name] for name in _COLUMNS.values())]
