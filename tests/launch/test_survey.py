"""What is wrong with hosts, from what they said: pure, so every case can be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainscale.launch.connection import HostError
from trainscale.launch.survey import (
    Finding,
    Link,
    Survey,
    compute_clock_offset,
    describe_host_devices,
    describe_hosts,
    find_problems,
    format_gigabits,
    format_milliseconds,
    group_framework_versions,
)
from trainscale.spec.devices import Host
from trainscale.worker.inspection.host import FrameworkLocation, Gpu, HostFacts, Machine

GPU = Gpu(0, "NVIDIA H100", 80 << 30, "550.1")


def machine(gpus: int = 0, cores: int = 8, pressure: float = 0.0) -> Machine:
    return Machine("node", "CPU", tuple(range(cores)), 1, 64 << 30, 60 << 30, (GPU,) * gpus, "", 0.1, pressure)


def good(name: str, torch: str | None = "2.13.0", **changes: Any) -> Host:
    """A host that answered."""
    its_machine = machine(changes.get("gpus", 0), changes.get("cores", 8), changes.get("pressure", 0.0))
    address = changes.get("address", f"10.0.0.{name[-1]}")
    facts = HostFacts(
        machine=its_machine,
        addresses={"eth0": address},
        reached_at=address,
        disk_free_bytes=changes.get("disk", 10**11),
        python="/usr/bin/python3",
        python_version="3.11.2",
        frameworks={"torch": FrameworkLocation("/usr/bin/python3", {"torch": torch}) if torch else None},
        clock_ahead_seconds=changes.get("ahead", (-0.01, 0.01)),
        worker_copied=False,
    )
    pythons = {name: location.python for name, location in facts.frameworks.items() if location}
    return Host(address, name, interface="eth0", pythons=pythons, facts=facts)


def bad(name: str, why: str, remedy: str = "") -> HostError:
    return HostError(name, why, remedy=remedy)


def of(*hosts: Host | HostError, links: tuple[Link, ...] = (), given: dict[str, str] | None = None) -> list[Finding]:
    usable = tuple(host for host in hosts if isinstance(host, Host))
    errors = {error.host: error for error in hosts if isinstance(error, HostError)}
    every = (*(Host(name) for name in errors), *usable)
    return find_problems(Survey(every, usable, errors, links), given or {})


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    links = (Link("node1", "node2", 1e9, 1e-4), Link("node2", "node1", 1.1e9, 1.2e-4))
    assert of(good("node1"), good("node2"), links=links) == []


def test_hosts_with_the_same_trouble_are_told_together() -> None:
    down = [bad(f"node{n}", "time-out: it does not answer", f"ssh node{n}") for n in range(1, 7)]
    (finding,) = of(*down, good("node9"))
    assert finding == Finding("node1, node2, node3, node4 and 2 more: time-out: it does not answer", "ssh node1")


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ((-0.5, 0.9), None),
        ((-3.0, 4.0), None),  # a slow answer tells nothing
        ((0.9, 1.2), None),
        ((1.2, 1.3), "node1: its clock is 1.2 s ahead of this machine's"),
        ((-7.6, -7.5), "node1: its clock is 7.5 s behind this machine's"),
    ],
)
def test_clocks_that_surely_differ_are_told(bounds: tuple[float, float], problem: str | None) -> None:
    findings = of(good("node1", ahead=bounds))
    assert [finding.problem for finding in findings] == ([problem] if problem else [])
    assert not any(finding.is_serious for finding in findings)


def test_a_clock_that_was_not_compared_is_unknown() -> None:
    assert compute_clock_offset(good("node1", ahead=None)) is None


def test_versions_that_differ_are_serious() -> None:
    (finding,) = of(good("node1"), good("node2"), good("node3", torch="2.12.0"))
    assert finding.is_serious
    assert finding.problem == "torch is not the same on all hosts: 2.13.0 on node1, node2; 2.12.0 on node3"


def test_a_framework_that_some_hosts_lack_is_serious() -> None:
    (finding,) = of(good("node1"), good("node2", torch=None))
    assert finding.is_serious
    assert finding.problem == "torch is not the same on all hosts: 2.13.0 on node1; not on node2"
    assert "--python torch=PATH" in finding.remedy


def test_no_framework_anywhere_is_told_once() -> None:
    (finding,) = of(good("node1", torch=None), good("node2", torch=None))
    assert finding.is_serious
    assert finding.problem == "both hosts: no framework there (torch)"


def test_a_framework_of_two_modules_has_both_versions() -> None:
    host = good("node1")
    assert host.facts is not None
    keras = FrameworkLocation("/p", {"keras": "3.15.1", "jax": "0.10.2"})
    host = replace(host, facts=replace(host.facts, frameworks={"keras-jax": keras}))
    assert group_framework_versions([host]) == {"keras-jax": {"3.15.1 on jax 0.10.2": ["node1"]}}


def test_a_python_that_was_named_but_not_used_is_told() -> None:
    (finding,) = of(good("node1"), given={"torch": "/opt/torch/python"})
    assert not finding.is_serious
    assert finding.problem == "node1: torch is not where --python says, but in /usr/bin/python3"
    assert of(good("node1"), given={"torch": "/usr/bin/python3"}) == []


def test_hosts_that_differ_in_devices_are_told() -> None:
    (finding,) = of(good("node1", gpus=8), good("node2", gpus=4), good("node3"))
    assert not finding.is_serious
    assert finding.problem == "the hosts differ: 8 × NVIDIA H100 on node1; 4 × NVIDIA H100 on node2; 8 cores on node3"
    assert describe_host_devices(good("node1", cores=1)) == "1 core"


def test_two_hosts_with_one_address_are_serious() -> None:
    (finding,) = of(good("node1", address="172.17.0.1"), good("node2", address="172.17.0.1"))
    assert finding.is_serious
    assert finding.problem.startswith("node1, node2: all have the address 172.17.0.1")
    assert "--interface" in finding.remedy


def test_little_disk_and_a_busy_host_are_worth_a_look() -> None:
    findings = of(good("node1", disk=80_000_000), good("node2", pressure=40.0))
    assert [finding.is_serious for finding in findings] == [False, False]
    assert findings[0].problem == "node1: only 80 MB are free where the worker is copied to"
    assert findings[1].problem == "node2: busy, up to 40 % of the time something waits for a core"


def ring(*speeds: float | None, seconds: float = 1e-4, error: str = "") -> tuple[Link, ...]:
    count = len(speeds)
    return tuple(
        Link(f"node{n}", f"node{n % count + 1}", speed, seconds if speed else None, "" if speed else error)
        for n, speed in enumerate(speeds, 1)
    )


def hosts(count: int) -> list[Host]:
    return [good(f"node{n}") for n in range(1, count + 1)]


def test_a_pair_much_slower_than_the_others_is_named() -> None:
    (finding,) = of(*hosts(4), links=ring(1e9, 0.2e9, 0.95e9, 0.94e9))
    assert not finding.is_serious
    assert finding.problem == "node2 → node3: 0.200 Gbit/s, where other pairs have 0.945"


def test_pairs_of_about_one_speed_are_not() -> None:
    assert of(*hosts(4), links=ring(1e9, 0.5e9, 0.9e9, 0.7e9)) == []


def test_a_pair_with_a_long_way_is_named() -> None:
    far = (*ring(1e9, 1e9, 1e9)[:2], Link("node3", "node1", 1e9, 0.02))
    (finding,) = of(*hosts(3), links=far)
    assert finding.problem == "node3 → node1: a round trip takes 20.0 ms, where other pairs need 0.100"
    near = (*ring(1e9, 1e9, 1e9)[:2], Link("node3", "node1", 1e9, 0.0009))
    assert of(*hosts(3), links=near) == []


def test_pairs_without_a_connection_are_serious_and_told_together() -> None:
    (finding,) = of(*hosts(3), links=ring(None, 1e9, None, error="no answer in time"))
    assert finding.is_serious
    assert finding.problem == "node1 → node2, node3 → node1: no connection between them: no answer in time"
    assert "firewall" in finding.remedy
    (every,) = of(*hosts(3), links=ring(None, None, None, error="no answer in time"))
    assert every.problem.startswith("all 3 pairs: no connection")


def test_names_of_many_hosts_are_cut_short() -> None:
    names = [f"n{number}" for number in range(6)]
    assert describe_hosts(names[:1], 1) == "n0"
    assert describe_hosts(names[:2], 2) == "both hosts"
    assert describe_hosts(names, 6) == "all 6 hosts"
    assert describe_hosts(names, 7) == "n0, n1, n2, n3 and 2 more"


@pytest.mark.parametrize(
    ("bits", "text"), [(2.346e11, "235"), (1.2345e10, "12.3"), (1.2345e9, "1.23"), (9.54e7, "0.095"), (1e6, "0.001")]
)
def test_gigabits_have_three_digits(bits: float, text: str) -> None:
    assert format_gigabits(bits) == text


@pytest.mark.parametrize(("seconds", "text"), [(2.3e-5, "0.023"), (1.5e-3, "1.50"), (0.0205, "20.5"), (0.25, "250")])
def test_milliseconds_have_three_digits(seconds: float, text: str) -> None:
    assert format_milliseconds(seconds) == text
