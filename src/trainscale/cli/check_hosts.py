"""``trainscale check --hosts FILE``: show every host as a run would see it, what is wrong, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ..cluster.devices import find_devices, get_machine
from ..errors import InputError
from ..launch.inspection.hosts import choose_pythons, combine_probes
from ..launch.inspection.survey import (
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
from ..launch.launchers.target import Target
from ..launch.worker_archive import build_archive
from ..report.numbers import format_decimal_size, format_gibibytes
from ..spec.devices import AvailableDevices, Host
from ..spec.experiment import Experiment
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.probe import ProbeRequest

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONNECT_SECONDS = 5  # a host that is up answers at once


def check_hosts(console: Console, target: Target, experiment: Experiment, frameworks: Sequence[str]) -> int:
    """Return 0 if a run could use all hosts. ``frameworks`` are those that the person named; they are imported too."""
    given = dict(experiment.resources.python or ())
    pythons = choose_pythons(frameworks or FRAMEWORKS, given)
    host_launcher = replace(target, access=replace(target.access, connect_seconds=_CONNECT_SECONDS)).make_launcher()
    try:
        count = len(target.access.hosts)
        text = f"asking {count or 'the'} host{'s' if count != 1 else ''}"
        with console.status(text) if console.is_terminal else nullcontext():
            result = survey(host_launcher, pythons, [ProbeRequest(name) for name in frameworks])
    finally:
        host_launcher.close()
    problems = find_problems(result, given)
    devices, refusal = _find_usable_devices(result, experiment)
    problems += [refusal] if refusal else []
    facts = {host.name: host.facts for host in result.usable if host.facts}
    for name in frameworks if devices else ():
        answer = combine_probes(facts, name)
        if not answer.is_available:
            remedy = f"get it with: {answer.install_command}" if answer.install_command else ""
            problems.append(Finding(f"{name}: {answer.reason}", remedy))
    _print(console, result, problems, devices)
    return 1 if any(finding.is_serious for finding in problems) else 0


def _find_usable_devices(result: Survey, experiment: Experiment) -> tuple[AvailableDevices | None, Finding | None]:
    """Return the devices of the hosts that answered, or why a run would refuse these hosts."""
    if not result.usable:
        return None, None
    try:
        return find_devices(result.usable, experiment), None
    except InputError as error:
        return None, Finding(str(error))


def _print(console: Console, result: Survey, problems: Sequence[Finding], devices: AvailableDevices | None) -> None:
    console.print(_make_hosts_table(result))
    for line in _summarise(result, devices):
        console.print(line, markup=False)
    if result.usable:
        console.print()
        console.print(_make_frameworks_table(result))
    console.print()
    console.print(_make_problems_table(problems) if problems else "nothing is wrong")


def _make_hosts_table(result: Survey) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

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
    facts, offset, link = host.facts, compute_clock_offset(host), result.find_link_from(host.name)
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


def _summarise(result: Survey, devices: AvailableDevices | None) -> list[str]:
    """Return the lines about all hosts together."""
    count = len(result.hosts)
    usable = f"{len(result.usable)} of {count} host{'s' if count > 1 else ''} can be used"
    lines = [f"{usable}: {devices.description}" if devices else usable]
    measured = [
        (link.bits_per_second, link.round_trip_seconds, link.name)
        for link in result.links
        if link.bits_per_second and link.round_trip_seconds
    ]
    if measured:
        bits, round_trip, name = min(measured)
        speed = f"{format_gigabits(bits)} Gbit/s, {format_milliseconds(round_trip)} ms"
        lines.append(f"Gbit/s to the next host, ms of a round trip; the slowest pair is {name}: {speed}")
    return lines


def _make_frameworks_table(result: Survey) -> RenderableType:
    """Return a table of the versions of each framework and of the worker, with their hosts."""
    from rich.table import Table
    from rich.text import Text

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


def _make_problems_table(problems: Sequence[Finding]) -> RenderableType:
    """Return a table of the problems with their remedies, the serious ones first."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in sorted(problems, key=lambda problem: not problem.is_serious):
        mark = Text("✗", style="red") if finding.is_serious else Text("⚑", style="yellow")
        grid.add_row(mark, Text(finding.problem))
        if finding.remedy:
            grid.add_row("", Text(f"→ {finding.remedy}", style="dim"))
    return grid
