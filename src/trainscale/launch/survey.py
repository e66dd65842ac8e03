"""The survey behind ``trainscale check --hosts``: the hosts, the network between them, and what is wrong."""

import secrets
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..cluster.hosts import get_machine
from ..errors import InputError
from ..spec.devices import Host
from ..worker.events import Links
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.links import LinksRequest
from ..worker.inspection.probe import ProbeRequest
from .connection import HostError
from .hosts import add_facts, visit_hosts
from .launchers.base import Launcher
from .tasks import make_role_task, run_host_tasks
from .trial.state import join_names

_PROBE_SECONDS = 150.0  # where frameworks are imported
_LINK_SECONDS = 5.0  # for a neighbour to answer
_LINKS_SECONDS = 60.0

# Limits of what is worth a finding.
_CLOCK_SECONDS = 1.0
_SLOW = 3.0  # times slower than the median of all pairs
_LATE_SECONDS = 0.001  # a shorter round trip is never too long
_LITTLE_DISK = 500_000_000  # bytes
_BUSY_PRESSURE = 5.0  # per cent of time that something waits for a core


@dataclass(frozen=True)
class Link:
    """The network from one host to the next, or why it could not be measured."""

    sender: str
    receiver: str
    bits_per_second: float | None = None
    round_trip_seconds: float | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.sender} → {self.receiver}"


@dataclass(frozen=True)
class Survey:
    hosts: tuple[Host, ...]
    usable: tuple[Host, ...]
    errors: Mapping[str, HostError] = field(default_factory=dict)
    links: tuple[Link, ...] = ()


def survey(launcher: Launcher, pythons: Mapping[str, str], probes: Sequence[ProbeRequest] = ()) -> Survey:
    """Survey all hosts. ``pythons``: tried first; ``probes``: the frameworks to import."""
    answers = visit_hosts(launcher, pythons, probes, _PROBE_SECONDS if probes else 30.0)
    usable: list[Host] = []
    errors: dict[str, HostError] = {}
    for host in launcher.hosts():
        answer = answers[host.name]
        if isinstance(answer, HostError):
            errors[host.name] = answer
            continue
        try:
            usable.append(add_facts(host, answer, launcher.access))
        except InputError as error:  # it has no such interface
            remedy = "name another network by --interface"
            errors[host.name] = HostError(host.name, str(error), remedy=remedy)
    if len(usable) < 2:
        return Survey(launcher.hosts(), tuple(usable), errors)
    # The links of a ring of these hosts, over the addresses of training.
    names, token = [host.name for host in usable], secrets.token_hex(16)
    with launcher.connect(names, _LINKS_SECONDS, tolerates_errors=True) as connected:
        ports = connected.find_ports(dict.fromkeys(names, 1))
        ring = [host for host in usable if host.name in ports]
        pairs = list(zip(ring, [*ring[1:], *ring[:1]], strict=True))
        tasks = {}
        for number, (host, following) in enumerate(pairs):
            request = LinksRequest(
                address=host.address,
                port=ports[host.name][0],
                next_address=following.address,
                next_port=ports[following.name][0],
                sends_first=sends_first(number, len(ring)),
                token=token,
                seconds=_LINK_SECONDS,
            )
            tasks[host.name] = [make_role_task(host.name, 0, "links", request)]
        answers_of_ring = run_host_tasks(connected, tasks, _LINKS_SECONDS) if len(ring) > 1 else {}
    measured: dict[str, Links] = {}
    for name, tried in answers_of_ring.items():
        measurement = None if isinstance(tried, HostError) else tried[0].find_last(Links)
        reason = tried.why if isinstance(tried, HostError) else tried[0].last_line or "ended without an answer"
        measured[name] = measurement or Links(send_error=reason, receive_error=reason)
    links = []
    for sender, receiver in pairs if measured else ():
        # The sender knows the round trip, the receiver the bandwidth.
        sent, received = measured[sender.name], measured[receiver.name]
        values = (received.bits_per_second, sent.round_trip_seconds)
        reason = sent.send_error or received.receive_error  # the receiver may only have waited
        links.append(Link(sender.name, receiver.name, *values, reason))
    lost = {name: error.why for name, error in connected.errors.items() if name not in answers_of_ring}
    links += [Link(name, "the others", error=reason) for name, reason in lost.items()]
    return Survey(launcher.hosts(), tuple(usable), errors, tuple(links))


def sends_first(number: int, count: int) -> bool:
    """Every other host of a ring sends first, but not the last of an odd ring."""
    return number % 2 == 0 and number < count - 1


# ---- what is wrong, and how to mend it


@dataclass(frozen=True)
class Finding:
    problem: str
    remedy: str = ""
    is_serious: bool = True  # a run on these hosts would be refused or fail


def find_problems(survey: Survey, given: Mapping[str, str]) -> list[Finding]:
    """``given``: the interpreters that the person named, by framework."""
    usable, problems = survey.usable, []
    # Hosts with the same error stand together, with the remedy for the first.
    by_reason = _group((error.why, host) for host, error in survey.errors.items())
    for reason, names in by_reason.items():
        hosts = describe_hosts(names, len(survey.hosts))
        problems.append(Finding(f"{hosts}: {reason}", survey.errors[names[0]].remedy))
    for address, names in _group((host.address, host.name) for host in usable).items():
        if len(names) > 1:
            problem = f"all have the address {address}, so they cannot reach each other by it"
            remedy = "is one machine named twice? Else name the network that connects them: --interface"
            problems.append(Finding(f"{describe_hosts(names)}: {problem}", remedy))
    problems += [*_find_link_problems(survey.links), *_find_framework_problems(usable, given)]
    warnings = []
    for host in usable:
        seconds = compute_clock_offset(host) or 0.0
        if abs(seconds) > _CLOCK_SECONDS:
            side = "ahead of" if seconds > 0 else "behind"
            problem = f"{host.name}: its clock is {abs(seconds):.1f} s {side} this machine's"
            warnings.append((problem, "let both follow a time server: timedatectl set-ntp true"))
    by_devices = _group((describe_host_devices(host), host.name) for host in usable)
    if len(by_devices) > 1:
        places = "; ".join(f"{devices} on {describe_hosts(names)}" for devices, names in by_devices.items())
        remedy = "use equal devices by --hosts-count, -g, or slots=N in the hosts file"
        warnings.append((f"the hosts differ: {places}", f"the slowest device sets the pace; {remedy}"))
    for host in usable:
        free = host.facts.disk_free_bytes if host.facts else None
        if free is not None and free < _LITTLE_DISK:
            problem = f"{host.name}: only {free / 1e6:.0f} MB are free where the worker is copied to"
            warnings.append((problem, "free some space there, or name another folder by --remote-dir"))
    pressures = {host.name: get_machine(host).pressure or 0.0 for host in usable}
    busy = [name for name, pressure in pressures.items() if pressure > _BUSY_PRESSURE]
    if busy:
        share = f"up to {max(pressures.values()):.0f} % of the time something waits for a core"
        slowed = describe_hosts(busy, len(usable))
        warnings.append((f"{slowed}: busy, {share}", "results will be noisy"))
    return [*problems, *(Finding(problem, remedy, is_serious=False) for problem, remedy in warnings)]


def _find_link_problems(links: Sequence[Link]) -> Iterator[Finding]:
    for error, names in _group((link.error, link.name) for link in links if link.error).items():
        pairs = describe_hosts(names, len(links)).replace("hosts", "pairs")
        yield Finding(
            f"{pairs}: no connection between them: {error}",
            "training connects the hosts with each other by TCP, on ports 10000 to 60999:"
            " open the firewall between them, or name another network by --interface",
        )
    speeds = {link.name: link.bits_per_second for link in links if link.bits_per_second}
    median = statistics.median(speeds.values()) if speeds else 0.0
    remedy = "check the cable, the switch, and the network card (ethtool); every step waits for this pair"
    for name, speed in speeds.items() if len(speeds) > 2 else ():
        if speed * _SLOW < median:
            own, usual = format_three_digits(speed / 1e9), format_three_digits(median / 1e9)
            problem = f"{name}: {own} Gbit/s, where other pairs have {usual}"
            yield Finding(problem, remedy, is_serious=False)
    times = {link.name: link.round_trip_seconds for link in links if link.round_trip_seconds}
    median = statistics.median(times.values()) if times else 0.0
    for name, seconds in times.items():
        if seconds > max(_SLOW * median, _LATE_SECONDS):
            taken, usual = format_three_digits(seconds * 1e3), format_three_digits(median * 1e3)
            problem = f"{name}: a round trip takes {taken} ms, where other pairs need {usual}"
            yield Finding(problem, "is that host far away, or busy?", is_serious=False)


def _find_framework_problems(hosts: Sequence[Host], given: Mapping[str, str]) -> Iterator[Finding]:
    versions = group_framework_versions(hosts)
    if hosts and not any(by_version.keys() - {""} for by_version in versions.values()):
        names = describe_hosts([host.name for host in hosts], len(hosts))
        yield Finding(
            f"{names}: no framework there ({', '.join(versions)})",
            "name a Python that has it: --python torch=PATH; or install it there: trainscale env create",
        )
        return
    for name, by_version in versions.items():
        if len(by_version) > 1:
            newest_first = sorted(by_version.items(), reverse=True)
            hosts_of = [f"{version or 'not'} on {describe_hosts(names)}" for version, names in newest_first]
            yield Finding(
                f"{name} is not the same on all hosts: {'; '.join(hosts_of)}",
                f"install the same version on all, or name a Python that all have: --python {name}=PATH",
            )
        if name in given:
            located = [(host.name, host.facts.frameworks[name]) for host in hosts if host.facts]
            others = {host: at.python for host, at in located if at and at.python != given[name]}
            if others:
                places = ", ".join(dict.fromkeys(at.python for _, at in located if at))
                problem = f"{name} is not where --python says, but in {places}"
                remedy = f"is {given[name]} there, with {name} in it?"
                yield Finding(f"{describe_hosts(list(others))}: {problem}", remedy, is_serious=False)


def _group(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group names by what they have in common, which is the first of each pair."""
    groups: dict[str, list[str]] = {}
    for common, name in pairs:
        groups.setdefault(common, []).append(name)
    return groups


def describe_hosts(names: Sequence[str], total: int | None = None) -> str:
    """Return the names, or "all 16 hosts"."""
    if total is not None and len(names) == total and total > 1:
        return f"all {total} hosts" if total > 2 else "both hosts"
    return join_names(names)


def group_framework_versions(hosts: Sequence[Host]) -> dict[str, dict[str, list[str]]]:
    """Return the hosts of each version of each framework; "" where it is missing."""
    versions: dict[str, dict[str, list[str]]] = {}
    for host in hosts:
        for name, location in host.facts.frameworks.items() if host.facts else ():
            version = ""
            if location:
                first, *others = FRAMEWORKS[name].imports
                bases = [f"on {module} {location.versions[module]}" for module in others]
                version = " ".join([location.versions[first], *bases])
            versions.setdefault(name, {}).setdefault(version, []).append(host.name)
    return versions


def compute_clock_offset(host: Host) -> float | None:
    """Return the seconds by which the clock is at least ahead (negative: behind)."""
    if host.facts is None or host.facts.clock_ahead_seconds is None:
        return None
    least, most = host.facts.clock_ahead_seconds
    return float(least if least > 0 else most if most < 0 else 0.0)


def describe_host_devices(host: Host) -> str:
    """Return "8 × NVIDIA H100", or the cores of a host without GPUs."""
    machine = get_machine(host)
    if not machine.gpus:
        return f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    counts = Counter(gpu.name for gpu in machine.gpus)
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def format_three_digits(value: float) -> str:
    digits = next(digits for digits, least in enumerate((100, 10, 1, -1)) if value >= least)
    return f"{value:.{digits}f}"
