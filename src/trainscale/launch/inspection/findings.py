"""Finds what is wrong with hosts that were surveyed, and says how to mend it. Pure.

A finding is serious when a run on these hosts would be refused or fail; the others are warnings.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...worker.frameworks.catalog import FRAMEWORKS
from ..connection import HostError
from .survey import Link, Survey, SurveyedHost

_CLOCK_SECONDS = 1.0
_SLOW = 3.0  # times slower than the median of all pairs
_LATE_SECONDS = 0.001  # a shorter round trip is never too long
_LITTLE_DISK = 500_000_000  # bytes
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core
_MOST_NAMES = 4  # a finding lists so many hosts, and says how many more there are


@dataclass(frozen=True)
class Finding:
    problem: str
    remedy: str = ""
    is_serious: bool = True


def find_problems(survey: Survey, given: Mapping[str, str]) -> list[Finding]:
    """Return all problems of the hosts. ``given`` holds the interpreters that the person named, by framework."""
    usable = survey.usable
    return [
        *_find_errors(survey),
        *_find_shared_addresses(usable),
        *_find_broken_links(survey.links),
        *_find_slow_links(survey.links),
        *_find_late_links(survey.links),
        *_check_frameworks(usable, given),
        *_check_clocks(usable),
        *_compare_devices(usable),
        *_check_disks(usable),
        *_check_load(usable),
    ]


def describe_hosts(names: Sequence[str], total: int | None = None) -> str:
    """Return «node1, node2, node3, node4 and 12 more»; «all 16 hosts» where these are all."""
    if total is not None and len(names) == total and total > 1:
        return f"all {total} hosts" if total > 2 else "both hosts"
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def _find_errors(survey: Survey) -> Iterable[Finding]:
    """Report hosts with the same error together, with the remedy for the first of them."""
    by_reason: dict[str, list[HostError]] = {}
    for surveyed in survey.hosts:
        if surveyed.error is not None:
            by_reason.setdefault(surveyed.error.why, []).append(surveyed.error)
    for reason, errors in by_reason.items():
        hosts = describe_hosts([error.host for error in errors], len(survey.hosts))
        yield Finding(f"{hosts}: {reason}", errors[0].remedy)


def _find_shared_addresses(hosts: Sequence[SurveyedHost]) -> Iterable[Finding]:
    by_address: dict[str, list[str]] = {}
    for surveyed in hosts:
        assert surveyed.usable_host is not None
        by_address.setdefault(surveyed.usable_host.address, []).append(surveyed.host.name)
    for address, names in by_address.items():
        if len(names) > 1:
            yield Finding(
                f"{describe_hosts(names)}: all have the address {address}, so they cannot reach each other by it",
                "is one machine named twice? Otherwise name the network that connects them: --interface",
            )


def _find_broken_links(links: Sequence[Link]) -> Iterable[Finding]:
    by_error: dict[str, list[str]] = {}
    for link in links:
        if link.error:
            by_error.setdefault(link.error, []).append(link.name)
    for error, names in by_error.items():
        pairs = describe_hosts(names, len(links)).replace("hosts", "pairs")
        yield Finding(
            f"{pairs}: no connection between them: {error}",
            "training connects the hosts with each other by TCP, on ports 10000 to 60999: open the firewall between"
            " them, or name another network by --interface",
        )


def _find_slow_links(links: Sequence[Link]) -> Iterable[Finding]:
    speeds = {link.name: link.bits_per_second for link in links if link.bits_per_second}
    if len(speeds) < 3:
        return
    median = statistics.median(speeds.values())
    for name, speed in speeds.items():
        if speed * _SLOW < median:
            yield Finding(
                f"{name}: {format_gigabits(speed)} Gbit/s, where other pairs have {format_gigabits(median)}",
                "check the cable, the switch, and the speed of the network card (ethtool); every step waits for the"
                " slowest pair",
                is_serious=False,
            )


def _find_late_links(links: Sequence[Link]) -> Iterable[Finding]:
    times = {link.name: link.round_trip_seconds for link in links if link.round_trip_seconds}
    median = statistics.median(times.values()) if times else 0.0
    for name, seconds in times.items():
        if seconds > max(_SLOW * median, _LATE_SECONDS):
            yield Finding(
                f"{name}: a round trip takes {format_milliseconds(seconds)} ms, where other pairs need"
                f" {format_milliseconds(median)}",
                "is that host far away, or busy?",
                is_serious=False,
            )


def _check_frameworks(hosts: Sequence[SurveyedHost], given: Mapping[str, str]) -> Iterable[Finding]:
    if not hosts:
        return
    versions = group_framework_versions(hosts)
    if not any(by_version.keys() - {""} for by_version in versions.values()):
        names = describe_hosts([surveyed.host.name for surveyed in hosts], len(hosts))
        yield Finding(
            f"{names}: no framework there ({', '.join(versions)})",
            "name a Python that has it: --python torch=PATH; or install it there: trainscale env create",
        )
        return
    for name, by_version in versions.items():
        if len(by_version) > 1:
            newest_first = sorted(by_version.items(), reverse=True)
            places = "; ".join(f"{version or 'not'} on {describe_hosts(names)}" for version, names in newest_first)
            yield Finding(
                f"{name} is not the same on all hosts: {places}",
                f"install the same version on all, or name a Python that all have: --python {name}=PATH",
            )
        if name in given:
            yield from _find_other_pythons(hosts, name, given[name])


def _find_other_pythons(hosts: Sequence[SurveyedHost], framework: str, path: str) -> Iterable[Finding]:
    """Report hosts that have the framework, but not in the Python that --python names."""
    pythons = {surveyed.host.name: _find_python(surveyed, framework) for surveyed in hosts}
    others = [host for host, python in pythons.items() if python not in (path, None)]
    if others:
        places = ", ".join(dict.fromkeys(filter(None, pythons.values())))
        problem = f"{describe_hosts(others)}: {framework} is not where --python says, but in {places}"
        yield Finding(problem, f"is {path} there, with {framework} in it?", is_serious=False)


def group_framework_versions(hosts: Sequence[SurveyedHost]) -> dict[str, dict[str, list[str]]]:
    """Return, for each framework, the hosts of each version; the version "" means that it is missing."""
    versions: dict[str, dict[str, list[str]]] = {}
    for surveyed in hosts:
        for name, location in surveyed.facts.frameworks.items() if surveyed.facts else ():
            version = _describe_version(name, location.versions) if location else ""
            versions.setdefault(name, {}).setdefault(version, []).append(surveyed.host.name)
    return versions


def _describe_version(framework: str, modules: Mapping[str, str]) -> str:
    """Return «3.15.1 on jax 0.10.2» for a framework of two modules."""
    first, *others = FRAMEWORKS[framework].imports
    return " ".join([modules[first], *(f"on {module} {modules[module]}" for module in others)])


def _find_python(surveyed: SurveyedHost, framework: str) -> str | None:
    location = surveyed.facts.frameworks.get(framework) if surveyed.facts else None
    return location.python if location else None


def _check_clocks(hosts: Sequence[SurveyedHost]) -> Iterable[Finding]:
    for surveyed in hosts:
        seconds = compute_clock_offset(surveyed)
        if seconds is not None and abs(seconds) > _CLOCK_SECONDS:
            side = "ahead of" if seconds > 0 else "behind"
            yield Finding(
                f"{surveyed.host.name}: its clock is {abs(seconds):.1f} s {side} this machine's",
                "let both follow a time server: timedatectl set-ntp true",
                is_serious=False,
            )


def compute_clock_offset(surveyed: SurveyedHost) -> float | None:
    """Return the seconds by which a host's clock is certainly ahead, negative if it is behind.

    0 means that no difference can be seen, None that the clock is not known.
    """
    if surveyed.facts is None or surveyed.facts.clock_ahead_seconds is None:
        return None
    least, most = surveyed.facts.clock_ahead_seconds
    return float(least if least > 0 else most if most < 0 else 0.0)


def _compare_devices(hosts: Sequence[SurveyedHost]) -> Iterable[Finding]:
    by_devices: dict[str, list[str]] = {}
    for surveyed in hosts:
        by_devices.setdefault(describe_host_devices(surveyed), []).append(surveyed.host.name)
    if len(by_devices) > 1:
        places = "; ".join(f"{devices} on {describe_hosts(names)}" for devices, names in by_devices.items())
        yield Finding(
            f"the hosts differ: {places}",
            "the slowest device sets the pace; use equal devices by --hosts-count, -g, or slots=N in the hosts file",
            is_serious=False,
        )


def describe_host_devices(surveyed: SurveyedHost) -> str:
    """Return «8 × NVIDIA H100», or the cores of a host without GPUs."""
    assert surveyed.usable_host is not None
    machine = surveyed.usable_host.machine
    if not machine.gpus:
        return f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    return ", ".join(f"{count} × {name}" for name, count in Counter(gpu.name for gpu in machine.gpus).items())


def _check_disks(hosts: Sequence[SurveyedHost]) -> Iterable[Finding]:
    for surveyed in hosts:
        free = surveyed.facts.disk_free_bytes if surveyed.facts else None
        if free is not None and free < _LITTLE_DISK:
            problem = f"{surveyed.host.name}: only {free / 1e6:.0f} MB are free where the worker is copied to"
            yield Finding(problem, "free some space there, or name another folder by --remote-dir", is_serious=False)


def _check_load(hosts: Sequence[SurveyedHost]) -> Iterable[Finding]:
    pressures = {
        surveyed.host.name: surveyed.usable_host.machine.pressure or 0.0 for surveyed in hosts if surveyed.usable_host
    }
    busy = [name for name, pressure in pressures.items() if pressure > _BUSY_PRESSURE]
    if busy:
        share = f"up to {max(pressures.values()):.0f} % of the time something waits for a core"
        yield Finding(f"{describe_hosts(busy, len(hosts))}: busy, {share}", "results will be noisy", is_serious=False)


def format_gigabits(bits_per_second: float) -> str:
    return _format_three_digits(bits_per_second / 1e9)


def format_milliseconds(seconds: float) -> str:
    return _format_three_digits(seconds * 1e3)


def _format_three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.{2 + (value < 1)}f}"
