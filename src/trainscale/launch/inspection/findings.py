"""What is wrong with hosts that were surveyed, and how to mend it. Pure.

A finding is serious when a run on these hosts would be refused or fail; others are worth a look.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...worker.frameworks.catalog import FRAMEWORKS
from .survey import Link, Survey, Surveyed

_CLOCK_SECONDS = 1.0
_SLOW = 3.0  # times slower than the median of all pairs
_LATE_SECONDS = 0.001  # below that, a longer way is nothing
_LITTLE_DISK = 500_000_000  # bytes
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core
_NAMES = 4  # of hosts that a finding lists; it says how many more there are


@dataclass(frozen=True)
class Finding:
    what: str
    remedy: str = ""
    serious: bool = True


def findings(survey: Survey, given: Mapping[str, str]) -> list[Finding]:
    """``given``: the interpreters that the person named, by framework."""
    usable = survey.usable
    return [
        *_errors(survey),
        *_addresses(usable),
        *_links(survey.links),
        *_frameworks(usable, given),
        *_clocks(usable),
        *_devices(usable),
        *_load(usable),
    ]


def hosts_words(names: Sequence[str], of: int | None = None) -> str:
    """«node1, node2, node3, node4 and 12 more»; «all hosts» where these are all."""
    if of is not None and len(names) == of and of > 1:
        return f"all {of} hosts" if of > 2 else "both hosts"
    shown = ", ".join(names[:_NAMES])
    return f"{shown} and {len(names) - _NAMES} more" if len(names) > _NAMES else shown


def _errors(survey: Survey) -> Iterable[Finding]:
    """Hosts with the same trouble together; what to do is told for the first of them."""
    same: dict[str, list[Surveyed]] = {}
    for one in survey.hosts:
        if one.error is not None:
            same.setdefault(one.error.why, []).append(one)
    for why, hosts in same.items():
        first = hosts[0].error
        assert first is not None
        yield Finding(f"{hosts_words([one.host.name for one in hosts], len(survey.hosts))}: {why}", first.remedy)


def _addresses(hosts: Sequence[Surveyed]) -> Iterable[Finding]:
    by_address: dict[str, list[str]] = {}
    for one in hosts:
        assert one.found is not None
        by_address.setdefault(one.found.address, []).append(one.host.name)
    for address, names in by_address.items():
        if len(names) > 1:
            yield Finding(
                f"{hosts_words(names)}: all have the address {address}, so they cannot reach each other by it",
                "one machine, named twice? Or name the network that connects them: --interface",
            )


def _links(links: Sequence[Link]) -> Iterable[Finding]:
    broken: dict[str, list[str]] = {}
    for link in links:
        if link.error:
            broken.setdefault(link.error, []).append(link.name)
    for error, names in broken.items():
        yield Finding(
            f"{hosts_words(names, len(links)).replace('hosts', 'pairs')}: no connection between them: {error}",
            "training connects the hosts with each other, by TCP to ports 10000 to 60999: open the firewall between"
            " them, or name another network by --interface",
        )
    speeds = {link.name: link.bits_per_second for link in links if link.bits_per_second}
    if len(speeds) > 2:
        usual = statistics.median(speeds.values())
        for name, speed in speeds.items():
            if speed * _SLOW < usual:
                yield Finding(
                    f"{name}: {gigabits(speed)} Gbit/s, where other pairs have {gigabits(usual)}",
                    "cable, switch, or a network card that agreed to less (ethtool); every step waits for the slowest",
                    serious=False,
                )
    times = {link.name: link.round_trip_seconds for link in links if link.round_trip_seconds}
    usual = statistics.median(times.values()) if times else 0.0
    for name, seconds in times.items():
        if seconds > max(_SLOW * usual, _LATE_SECONDS):
            words = f"{milliseconds(seconds)} ms there and back, where other pairs have {milliseconds(usual)}"
            yield Finding(f"{name}: {words}", "is that host in another place, or busy?", serious=False)


def _frameworks(hosts: Sequence[Surveyed], given: Mapping[str, str]) -> Iterable[Finding]:
    if not hosts:
        return
    found = versions(hosts)
    if not any(by_version.keys() - {""} for by_version in found.values()):
        names = ", ".join(found)
        yield Finding(
            f"{hosts_words([one.host.name for one in hosts], len(hosts))}: no framework there ({names})",
            "name a Python that has it: --python torch=PATH; or install it there: trainscale env create",
        )
        return
    for name, by_version in found.items():
        if len(by_version) > 1:
            words = "; ".join(
                f"{version or 'not'} on {hosts_words(names)}" for version, names in sorted(by_version.items())[::-1]
            )
            yield Finding(
                f"{name} is not the same on all hosts: {words}",
                f"the same version on all; or name a Python that all have: --python {name}=PATH",
            )
        path = given.get(name)
        others = [one.host.name for one in hosts if path and _python(one, name) not in (path, None)]
        if others:
            words = f"{hosts_words(others)}: {name} is not where --python says, but in {_python_words(hosts, name)}"
            yield Finding(words, f"is {path} there, with {name} in it?", serious=False)


def versions(hosts: Sequence[Surveyed]) -> dict[str, dict[str, list[str]]]:
    """Of each framework, each version with its hosts; "" is none."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in hosts:
        for name, facts in one.answer["frameworks"].items():
            version = _version_words(name, facts["versions"]) if facts else ""
            found.setdefault(name, {}).setdefault(version, []).append(one.host.name)
    return found


def _version_words(framework: str, modules: Mapping[str, str]) -> str:
    """«3.15.1 on jax 0.10.2» for a framework of two modules."""
    first, *rest = FRAMEWORKS[framework].imports
    return " ".join([modules[first], *(f"on {module} {modules[module]}" for module in rest)])


def _python(one: Surveyed, framework: str) -> str | None:
    facts = one.answer["frameworks"].get(framework)
    return str(facts["python"]) if facts else None


def _python_words(hosts: Sequence[Surveyed], framework: str) -> str:
    return ", ".join(dict.fromkeys(filter(None, (_python(one, framework) for one in hosts))))


def _clocks(hosts: Sequence[Surveyed]) -> Iterable[Finding]:
    for one in hosts:
        seconds = ahead(one)
        if seconds is not None and abs(seconds) > _CLOCK_SECONDS:
            side = "ahead of" if seconds > 0 else "behind"
            yield Finding(
                f"{one.host.name}: its clock is {abs(seconds):.1f} s {side} this machine's",
                "have it follow a time server, on both: timedatectl set-ntp true",
                serious=False,
            )


def ahead(one: Surveyed) -> float | None:
    """Seconds by which its clock surely is ahead, negative if behind; 0 where no difference can be told."""
    if one.answer.get("ahead_seconds") is None:
        return None
    least, most = one.answer["ahead_seconds"]
    return float(least if least > 0 else most if most < 0 else 0.0)


def _devices(hosts: Sequence[Surveyed]) -> Iterable[Finding]:
    kinds: dict[str, list[str]] = {}
    for one in hosts:
        kinds.setdefault(devices_words(one), []).append(one.host.name)
    if len(kinds) > 1:
        words = "; ".join(f"{kind} on {hosts_words(names)}" for kind, names in kinds.items())
        yield Finding(
            f"the hosts differ: {words}",
            "the slowest device sets the pace; --hosts-count, slots=N in the hosts file, or -g use equal ones",
            serious=False,
        )


def devices_words(one: Surveyed) -> str:
    """«8 × NVIDIA H100», or its cores where there are no GPUs."""
    assert one.found is not None
    machine = one.found.machine
    if not machine.gpus:
        return f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    names: dict[str, int] = {}
    for gpu in machine.gpus:
        names[gpu.name] = names.get(gpu.name, 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _load(hosts: Sequence[Surveyed]) -> Iterable[Finding]:
    for one in hosts:
        free = one.answer["disk_free_bytes"]
        if free is not None and free < _LITTLE_DISK:
            what = f"{one.host.name}: only {free / 1e6:.0f} MB are free where the worker is copied to"
            yield Finding(what, "make room there, or --remote-dir", serious=False)
    busy = {one.host.name: one.found.machine.pressure or 0.0 for one in hosts if one.found}
    names = [name for name, pressure in busy.items() if pressure > _BUSY_PRESSURE]
    if names:
        worst = max(busy.values())
        what = f"{hosts_words(names, len(hosts))}: busy, up to {worst:.0f} % of the time something waits for a core"
        yield Finding(what, "results will be noisy", serious=False)


def gigabits(bits_per_second: float) -> str:
    return _three_digits(bits_per_second / 1e9)


def milliseconds(seconds: float) -> str:
    return _three_digits(seconds * 1e3)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.{2 + (value < 1)}f}"
