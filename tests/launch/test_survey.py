"""What is wrong with hosts, from what they said: pure, so every case can be had."""

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
    format_three_digits,
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


def hosts(count: int) -> list[Host]:
    return [good(f"node{n}") for n in range(1, count + 1)]


def ring(*speeds: float | None, seconds: float = 1e-4) -> tuple[Link, ...]:
    """The links of a ring; one without a speed has no connection."""
    names = [f"node{n}" for n in range(1, len(speeds) + 1)]
    return tuple(
        Link(sender, receiver, speed, seconds if speed else None, "" if speed else "no answer in time")
        for sender, receiver, speed in zip(names, [*names[1:], names[0]], speeds, strict=True)
    )


def of(*hosts: Host | HostError, links: tuple[Link, ...] = (), given: dict[str, str] | None = None) -> list[Finding]:
    usable = tuple(host for host in hosts if isinstance(host, Host))
    errors = {error.host: error for error in hosts if isinstance(error, HostError)}
    every = (*(Host(name) for name in errors), *usable)
    return find_problems(Survey(every, usable, errors, links), given or {})


@pytest.mark.parametrize(
    "findings",
    [
        of(*hosts(2), links=(Link("node1", "node2", 1e9, 1e-4), Link("node2", "node1", 1.1e9, 1.2e-4))),
        of(*hosts(4), links=ring(1e9, 0.5e9, 0.9e9, 0.7e9)),  # of about one speed
        of(*hosts(3), links=(*ring(1e9, 1e9, 1e9)[:2], Link("node3", "node1", 1e9, 0.0009))),
        of(good("node1"), given={"torch": "/usr/bin/python3"}),
        of(good("node1", ahead=(-0.5, 0.9))),
        of(good("node1", ahead=(-3.0, 4.0))),  # a slow answer tells nothing
        of(good("node1", ahead=(0.9, 1.2))),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(findings: list[Finding]) -> None:
    assert findings == []


@pytest.mark.parametrize(
    ("findings", "problem", "remedy"),
    [
        # Hosts with the same trouble are reported together.
        (
            of(*(HostError(f"node{n}", "time-out: it is", remedy=f"ssh node{n}") for n in range(1, 7)), good("node9")),
            "node1, node2, node3, node4 and 2 more: time-out: it is",
            "ssh node1",
        ),
        (
            of(good("node1"), good("node2"), good("node3", torch="2.12.0")),
            "torch is not the same on all hosts: 2.13.0 on node1, node2; 2.12.0 on node3",
            "--python torch=PATH",
        ),
        (
            of(good("node1"), good("node2", torch=None)),
            "torch is not the same on all hosts: 2.13.0 on node1; not on node2",
            "--python torch=PATH",
        ),
        (
            of(good("node1", torch=None), good("node2", torch=None)),
            "both hosts: no framework there (torch)",
            "trainscale env create",
        ),
        (
            of(good("node1", address="172.17.0.1"), good("node2", address="172.17.0.1")),
            "node1, node2: all have the address 172.17.0.1",
            "--interface",
        ),
        (
            of(*hosts(3), links=ring(None, 1e9, None)),
            "node1 → node2, node3 → node1: no connection between them: no answer in time",
            "firewall",
        ),
        (of(*hosts(3), links=ring(None, None, None)), "all 3 pairs: no connection", "firewall"),
    ],
)
def test_what_would_stop_a_run_is_serious(findings: list[Finding], problem: str, remedy: str) -> None:
    (finding,) = findings
    assert finding.is_serious
    assert finding.problem.startswith(problem)
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("findings", "problem"),
    [
        (of(good("node1", ahead=(1.2, 1.3))), "node1: its clock is 1.2 s ahead of this machine's"),
        (of(good("node1", ahead=(-7.6, -7.5))), "node1: its clock is 7.5 s behind this machine's"),
        (
            of(good("node1"), given={"torch": "/opt/torch/python"}),
            "node1: torch is not where --python says, but in /usr/bin/python3",
        ),
        (
            of(good("node1", gpus=8), good("node2", gpus=4), good("node3")),
            "the hosts differ: 8 × NVIDIA H100 on node1; 4 × NVIDIA H100 on node2; 8 cores on node3",
        ),
        (of(good("node1", disk=80_000_000)), "node1: only 80 MB are free where the worker is copied to"),
        (
            of(good("node1"), good("node2", pressure=40.0)),
            "node2: busy, up to 40 % of the time something waits for a core",
        ),
        (
            of(*hosts(4), links=ring(1e9, 0.2e9, 0.95e9, 0.94e9)),
            "node2 → node3: 0.200 Gbit/s, where other pairs have 0.945",
        ),
        (
            of(*hosts(3), links=(*ring(1e9, 1e9, 1e9)[:2], Link("node3", "node1", 1e9, 0.02))),
            "node3 → node1: a round trip takes 20.0 ms, where other pairs need 0.100",
        ),
    ],
)
def test_what_makes_results_doubtful_is_worth_a_look(findings: list[Finding], problem: str) -> None:
    assert [(finding.problem, finding.is_serious) for finding in findings] == [(problem, False)]


def test_what_a_table_shows_of_a_host() -> None:
    assert compute_clock_offset(good("node1", ahead=None)) is None  # it was not compared
    assert describe_host_devices(good("node1", cores=1)) == "1 core"
    host = good("node1")
    assert host.facts is not None
    keras = FrameworkLocation("/p", {"keras": "3.15.1", "jax": "0.10.2"})
    host = replace(host, facts=replace(host.facts, frameworks={"keras-jax": keras}))
    assert group_framework_versions([host]) == {"keras-jax": {"3.15.1 on jax 0.10.2": ["node1"]}}


def test_names_of_many_hosts_are_cut_short() -> None:
    names = [f"n{number}" for number in range(6)]
    assert describe_hosts(names[:1], 1) == "n0"
    assert describe_hosts(names[:2], 2) == "both hosts"
    assert describe_hosts(names, 6) == "all 6 hosts"
    assert describe_hosts(names, 7) == "n0, n1, n2, n3 and 2 more"


def test_rates_and_times_have_three_digits() -> None:
    gigabits = {234.6: "235", 12.345: "12.3", 1.2345: "1.23", 0.0954: "0.095", 0.001: "0.001"}
    milliseconds = {0.023: "0.023", 1.5: "1.50", 20.5: "20.5", 250.0: "250"}
    for values in (gigabits, milliseconds):
        assert {value: format_three_digits(value) for value in values} == values
