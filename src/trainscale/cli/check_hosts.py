"""``trainscale check --hosts FILE``: every host as a run would find it, what is wrong, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ..cluster.devices import find_devices
from ..errors import InputError
from ..launch.connections.worker_archive import build_archive
from ..launch.inspection.findings import (
    Finding,
    ahead,
    devices_words,
    findings,
    gigabits,
    hosts_words,
    milliseconds,
    versions,
)
from ..launch.inspection.probe import probe_hosts, question
from ..launch.inspection.pythons import choose_pythons
from ..launch.inspection.survey import Survey, Surveyed, survey
from ..launch.launchers.target import Target
from ..spec.devices import AvailableDevices
from ..spec.experiment import Experiment
from ..worker.frameworks.catalog import FRAMEWORKS
from .wording import disk, gib

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONNECT_SECONDS = 5  # a host that is there takes none


def check_hosts(console: Console, place: Target, experiment: Experiment, named: Sequence[str]) -> int:
    """0 if a run could use all of them. ``named``: frameworks that the person asked for; those are imported too."""
    given = dict(experiment.resources.python or ())
    pythons = choose_pythons(named or FRAMEWORKS, given)
    how = replace(place, access=replace(place.access, connect_seconds=_CONNECT_SECONDS)).make_launcher()
    try:
        count = len(place.access.hosts)
        with _status(console, f"asking {count or 'the'} host{'s' if count != 1 else ''}"):
            found = survey(how, pythons)
        wrong = findings(found, given)
        supply, refusal = _supply(found, experiment)
        wrong += [refusal] if refusal else []
        if named and supply:
            with _status(console, f"importing {', '.join(named)}"):
                wrong += _imports(probe_hosts(how, supply.hosts, pythons, {name: question(name) for name in named}))
    finally:
        how.close()
    _show(console, found, wrong, supply)
    return 1 if any(finding.serious for finding in wrong) else 0


def _status(console: Console, words: str) -> AbstractContextManager[object]:
    return console.status(words) if console.is_terminal else nullcontext()


def _supply(found: Survey, experiment: Experiment) -> tuple[AvailableDevices | None, Finding | None]:
    """What those that answered can give together, or why a run would refuse them."""
    hosts = [one.found for one in found.usable if one.found is not None]
    if not hosts:
        return None, None
    try:
        return find_devices(hosts, experiment), None
    except InputError as error:
        return None, Finding(str(error))


def _imports(answers: Mapping[str, Mapping[str, object]]) -> list[Finding]:
    return [
        Finding(f"{name}: {answer['reason']}", f"get it with: {answer['get']}" if answer.get("get") else "")
        for name, answer in answers.items()
        if not answer["found"]
    ]


def _show(console: Console, found: Survey, wrong: Sequence[Finding], supply: AvailableDevices | None) -> None:
    console.print(_table(found))
    for line in _summary(found, supply):
        console.print(line, markup=False)
    if found.usable:
        console.print()
        console.print(_frameworks(found))
    console.print()
    console.print(_list(wrong) if wrong else "nothing is wrong")


def _table(found: Survey) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    several = len(found.hosts) > 1
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("host", overflow="fold")
    table.add_column("python", no_wrap=True)
    table.add_column("devices")
    for name in ("memory", "disk", "clock", *(("Gbit/s", "ms") if several else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.hosts:
        if one.error:
            short = Text(one.error.why.partition(":")[0], style="red")
            table.add_row(Text("✗", style="red"), Text(one.host.name), "", short)
        else:
            table.add_row(Text("✓", style="green"), Text(one.host.name), *map(Text, _cells(one, found)))
    return table


def _cells(one: Surveyed, found: Survey) -> list[str]:
    assert one.found is not None
    free, seconds, link = one.answer["disk_free_bytes"], ahead(one), found.link_from(one.host.name)
    bits, round_trip = (link.bits_per_second, link.round_trip_seconds) if link else (None, None)
    return [
        one.answer["version"],
        devices_words(one),
        gib(one.found.machine.memory_available_bytes),
        "?" if free is None else disk(free),
        "?" if seconds is None else f"{seconds:+.1f} s" if abs(seconds) >= 0.05 else "0 s",
        "–" if bits is None else gigabits(bits),
        "–" if round_trip is None else milliseconds(round_trip),
    ][: 7 if len(found.hosts) > 1 else 5]


def _summary(found: Survey, supply: AvailableDevices | None) -> list[str]:
    """What is to be said of all hosts together."""
    usable = found.usable
    lines = [f"{len(usable)} of {len(found.hosts)} host{'s' if len(found.hosts) > 1 else ''} can be used"]
    if supply:
        lines[0] += f": {supply.description}"
    measured = [link for link in found.links if link.bits_per_second and link.round_trip_seconds]
    if measured:
        slow = min(measured, key=lambda link: link.bits_per_second or 0.0)
        speed = f"{gigabits(slow.bits_per_second or 0.0)} Gbit/s, {milliseconds(slow.round_trip_seconds or 0.0)} ms"
        lines.append(f"Gbit/s to the next host, ms there and back; the slowest pair is {slow.name}: {speed}")
    return lines


def _frameworks(found: Survey) -> RenderableType:
    """What each is, and where; and the worker, which is a program like them."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    usable = found.usable
    for name, by_version in versions(usable).items():
        for version, names in by_version.items():
            if version or len(by_version) > 1:
                words = hosts_words(names, len(usable))
                grid.add_row(name, Text(version or "missing", style="" if version else "red"), words)
    copied = sum(bool(one.answer["copied"]) for one in usable)
    grid.add_row(
        "worker", build_archive().digest[:8], f"copied to {copied} just now" if copied else "was there already"
    )
    return grid


def _list(wrong: Sequence[Finding]) -> RenderableType:
    """The serious ones first."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in sorted(wrong, key=lambda one: not one.serious):
        mark = Text("✗", style="red") if finding.serious else Text("⚑", style="yellow")
        grid.add_row(mark, Text(finding.what))
        if finding.remedy:
            grid.add_row("", Text(f"→ {finding.remedy}", style="dim"))
    return grid
