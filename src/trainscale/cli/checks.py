"""``trainscale check``: hosts as a run would see them; ``trainscale parity``."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ..cluster import hosts as clusters
from ..errors import InputError, explain_unknown
from ..launch import plugins
from ..launch import survey as surveys
from ..launch.hosts import GIVEN, HERE, choose_pythons, combine_probes, find_interpreter
from ..launch.launchers.base import Launcher
from ..launch.launchers.local import LocalLauncher
from ..launch.launchers.target import LAUNCHERS, make_launcher
from ..launch.trial.trial import find_loopback_interface
from ..launch.worker_archive import build_archive
from ..measure.context import RunContext
from ..measure.measure import check_frameworks
from ..measure.parity import group_comparisons, prove
from ..record.parity import PROVEN, Check, Verdict
from ..report.documents import load_template
from ..report.numbers import format_count, format_decimal_size, format_gibibytes, format_scientific
from ..spec.experiment import Experiment
from ..spec.groups import list_plugin_setting_keys
from ..spec.plan import make_plan
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import read_machine
from ..worker.inspection.probe import ProbeRequest, run_probes
from ..worker.listening import find_free_ports
from ..worker.plugins import FRAMEWORK, LAUNCHER, MODEL
from .listings import print_broken_plugins
from .parser import Parser, add_experiment, read_experiment
from .tables import folded, make_table, number, text

_CHECK_SETTINGS = (
    "frameworks", "device", "launcher", "python", "hosts", "hosts_count", "remote_dir", "remote_python", "setup",
    "interface", "controller_address", "ssh_config", "forward_agent", "gpus_per_host", "cores_per_device", "nodes",
    "queue", "yarn", "ray_address", "timeout",
)  # fmt: skip


def check(argv: list[str]) -> int:
    parser = Parser("check")
    add_experiment(parser, (*_CHECK_SETTINGS, *list_plugin_setting_keys()))
    options = parser.read(argv)
    experiment = read_experiment(options)
    named = experiment.work.frameworks if options.frameworks else ()
    frameworks = [name.lower() for name in named]
    for name in frameworks:
        if name not in FRAMEWORKS:
            raise explain_unknown("framework", name, FRAMEWORKS)
    console, launcher = Console(highlight=False), make_launcher(experiment)
    if launcher.local:
        return _check_machine(console, experiment, frameworks or [*FRAMEWORKS])
    return _check_hosts(console, launcher, experiment, frameworks)


def _check_machine(console: Console, experiment: Experiment, frameworks: Sequence[str]) -> int:
    given = dict(experiment.resources.python or ())
    with console.status("asking every framework"):
        machine = read_machine()  # before the frameworks make it busy
        interpreters = {name: find_interpreter(name, given) for name in frameworks}
        requests = []
        for name in frameworks:
            plugin = FRAMEWORKS[name].plugin
            requests.append(ProbeRequest(name, plugins=[plugin] if plugin else []))
        pythons = {name: interpreter.python for name, interpreter in interpreters.items()}
        facts = run_probes(pythons, requests)
    interface = find_loopback_interface() or "none"
    try:
        ports = f"free on loopback ({interface}), for example {find_free_ports(8)[0]}"
    except OSError as error:
        ports = f"no free port on the loopback interface ({interface}): {error}"
    lines = load_template(__package__, "machine.j2", (("size", format_gibibytes),)).render(
        machine=machine,
        devices=clusters.find_local_devices(machine, Experiment.of(device="cpu")).description,
        disk_bytes=shutil.disk_usage(Path.cwd()).free,
        ports=ports,
        is_busy=(machine.pressure or 0.0) > 5.0,  # % of time that a core is waited for
        launchers=LAUNCHERS,
        python=f"{sys.version.split()[0]} ({sys.executable})",
    )
    table = make_table(text(style="bold"), folded(), show_header=False)
    for line in lines.splitlines():
        name, value = line.split("; ", 1)
        table.add_row(name, Text(value))
    for name in frameworks:
        answer, source = facts[name], interpreters[name].source
        where = f"{source} ({pythons[name]})" if source == GIVEN else source
        get = answer.install_command
        environment = interpreters[name].environment
        if environment and not get:
            get = f"trainscale env remove {environment}, then env create {environment}"
        if answer.is_available:
            gpus = f"sees {format_count(len(answer.gpus), 'GPU')}" if answer.gpus else "CPU only"
            cell = f"{answer.version}, {gpus}, {where}"
        else:
            cell = f"missing: {answer.reason}"
            if source != HERE:  # this Python is only the last resort: the reason says enough
                cell += f"\nlooked in: {where}"
            if get:
                cell += f"\nget it with: {get}"
        table.add_row(name, Text(cell))
    console.print(table)
    for kind in (FRAMEWORK, MODEL, LAUNCHER):
        print_broken_plugins(console, plugins.list_broken_plugins(kind))
    return 0 if any(facts[name].is_available for name in frameworks) else 1


def _check_hosts(console: Console, launcher: Launcher, experiment: Experiment, frameworks: Sequence[str]) -> int:
    """``frameworks`` are imported on the hosts. Return 0 if a run could use all hosts."""
    given = dict(experiment.resources.python or ())
    pythons = choose_pythons(frameworks or FRAMEWORKS, given)
    launcher.access = replace(launcher.access, connect_seconds=5)  # a host that is up answers at once
    try:
        with console.status("asking the hosts"):
            result = surveys.survey(launcher, pythons, [ProbeRequest(name) for name in frameworks])
    finally:
        launcher.close()
    problems, devices = surveys.find_problems(result, given), None
    try:
        devices = clusters.find_devices(result.usable, experiment) if result.usable else None
    except InputError as error:  # a run would refuse these hosts
        problems.append(surveys.Finding(str(error)))
    facts = {host.name: host.facts for host in result.usable if host.facts}
    for name in frameworks if devices else ():
        answer = combine_probes(facts, name)
        if not answer.is_available:
            remedy = f"get it with: {answer.install_command}" if answer.install_command else ""
            problems.append(surveys.Finding(f"{name}: {answer.reason}", remedy))

    usable = f"{len(result.usable)} of {format_count(len(result.hosts), 'host')} can be used"
    console.print(_make_hosts_table(result))
    console.print(f"{usable}: {devices.description}" if devices else usable, markup=False)
    links = [(link.bits_per_second, link.round_trip_seconds, link.name) for link in result.links]
    if measured := [(bits, seconds, pair) for bits, seconds, pair in links if bits and seconds]:
        bits, seconds, pair = min(measured)
        rate, time = surveys.format_three_digits(bits / 1e9), surveys.format_three_digits(seconds * 1e3)
        slowest = f"{pair}: {rate} Gbit/s, {time} ms"
        meaning = "Gbit/s to the next host, ms of a round trip"
        console.print(f"{meaning}; the slowest pair is {slowest}", markup=False)
    if result.usable:
        console.print()
        table = make_table(text(), Column(), Column(), show_header=False)
        for name, by_version in surveys.group_framework_versions(result.usable).items():
            for version, hosts in by_version.items():
                if version or len(by_version) > 1:
                    cell = Text(version or "missing", style="" if version else "red")
                    table.add_row(name, cell, surveys.describe_hosts(hosts, len(result.usable)))
        copied = sum(bool(host.facts and host.facts.worker_copied) for host in result.usable)
        note = f"copied to {copied} just now" if copied else "was there already"
        table.add_row("worker", build_archive().digest[:8], note)
        console.print(table)
    table = make_table(text(), folded(), show_header=False, gap=1)
    for finding in sorted(problems, key=lambda problem: not problem.is_serious):
        mark = Text("✗", style="red") if finding.is_serious else Text("⚑", style="yellow")
        table.add_row(mark, Text(finding.problem))
        if finding.remedy:
            table.add_row("", Text(f"→ {finding.remedy}", style="dim"))
    console.print()
    console.print(table if problems else "nothing is wrong")
    return 1 if any(finding.is_serious for finding in problems) else 0


def _make_hosts_table(result: surveys.Survey) -> Table:
    links = {link.sender: link for link in result.links}
    has_links = len(result.hosts) > 1
    numbers = map(number, ("memory", "disk", "clock", *(("Gbit/s", "ms") if has_links else ())))
    table = make_table(text(), folded("host"), text("python"), Column("devices"), *numbers)
    usable = {host.name: host for host in result.usable}
    for name in (host.name for host in result.hosts):
        if name not in usable:
            reason = Text(result.errors[name].why.partition(":")[0], style="red")
            table.add_row(Text("✗", style="red"), Text(name), "", reason)
            continue
        host, facts = usable[name], usable[name].facts
        assert facts is not None
        free, offset = facts.disk_free_bytes, surveys.compute_clock_offset(host)
        cells = [
            facts.python_version,
            surveys.describe_host_devices(host),
            format_gibibytes(clusters.get_machine(host).memory_available_bytes),
            "?" if free is None else format_decimal_size(free),
            "?" if offset is None else f"{offset:+.1f} s" if abs(offset) >= 0.05 else "0 s",
        ]
        if has_links:
            link = links.get(name)
            bits, seconds = (link.bits_per_second, link.round_trip_seconds) if link else (None, None)
            cells.append("–" if bits is None else surveys.format_three_digits(bits / 1e9))
            cells.append("–" if seconds is None else surveys.format_three_digits(seconds * 1e3))
        table.add_row(Text("✓", style="green"), Text(name), *map(Text, cells))
    return table


def parity(argv: list[str]) -> int:
    parser = Parser(
        "parity",
        "Prove that frameworks train the same network: counts, weights, logits, three steps, 8-bit images."
        " The first framework is the reference. The exit code is 0 if all are proven.",
    )
    parser.add("--fresh", "", "compute cached numbers again")
    keys = ("models", "frameworks", "image_size", "classes", "layout", "seed", "device", "python")
    add_experiment(parser, keys)
    options = parser.read(argv)
    experiment = read_experiment(options)
    plan = make_plan(experiment, clusters.find_local_devices(read_machine(), experiment))
    if not group_comparisons(plan.configs):
        named = ", ".join(experiment.work.frameworks)
        raise InputError(f"frameworks {named}: nothing to compare; valid: two frameworks or more")
    given = dict(experiment.resources.python or ())
    pythons = choose_pythons((config.framework for config in plan.configs), given)
    context = check_frameworks(RunContext(plan, LocalLauncher(), pythons))
    for name, reason in context.missing.items():
        print(f"trainscale: framework {name!r}: {reason}\n  the others are measured", file=sys.stderr)
    say = partial(print, file=sys.stderr, flush=True)
    verdicts = prove(context, context.usable_plan.configs, say, options.fresh)
    console = Console(highlight=False)
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        console.print(_make_parity_table(model, [v for v in verdicts if v.model == model]))
    are_proven = all(verdict.state == PROVEN for verdict in verdicts)
    return 0 if verdicts and are_proven and not context.missing else 1


# Headings that fit into 80 columns, and the checks of measure/parity.py.
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
    numbers = [number(heading, vertical="bottom") for heading in ("counts", *_COLUMNS, "others")]
    table = make_table(text("framework", vertical="bottom"), *numbers, text(), title=title, gap=1)
    table.title_style = "bold"
    checks = next((verdict.checks for verdict in verdicts if verdict.checks), ())
    allowed = [format_scientific(check.tolerance) for check in _select_shown_checks(checks)]
    table.add_row("allowed", *allowed, "", style="dim")
    for verdict in verdicts:
        cells = [
            Text(format_scientific(check.difference), style="" if check.ok else "bold red")
            for check in _select_shown_checks(verdict.checks)
        ]
        if cells:
            shown = {*_COUNTS, *_COLUMNS.values()}
            failed = sum(not check.ok for check in verdict.checks if check.name not in shown)
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
