"""Who goes where: one host filled before the next, servers beside or apart, and dealt out as dmlc did."""

from typing import Any

import pytest
from this_machine import plan

from trainscale.errors import InputError
from trainscale.launch.trial.trial import TrialSettings, build_jobs, count_ports, place_trial
from trainscale.spec.config import Config, Trial
from trainscale.spec.devices import (
    AvailableDevices,
    Host,
    Slot,
    check_room,
    count_hosts,
    count_most_workers,
    place_processes,
)
from trainscale.spec.plan import Plan
from trainscale.worker.job import Device, Measure


def available(*counts: int, kind: str = "cpu") -> AvailableDevices:
    """Hosts a, b, c … with so many devices each."""
    hosts = tuple(
        Host(
            f"10.0.0.{n}",
            name,
            devices=tuple(Device(kind, slot, (slot,) if kind == "cpu" else ()) for slot in range(count)),
        )
        for n, (name, count) in enumerate(zip("abcdefgh", counts, strict=False), 1)
    )
    description = f"{len(counts)} hosts with {counts[0]} {kind.upper()} devices each"
    return AvailableDevices(kind, hosts, 1 if kind == "cpu" else 0, description)


def make_config(**settings: Any) -> Config:
    return Config(**{"framework": "torch", "model": "mnist", "batch": 8, "strategy": "allreduce",
                     "image_size": 28, "classes": 10, **settings})  # fmt: skip


def ps(servers: int, **settings: Any) -> Config:
    return make_config(strategy="ps", servers=servers, **settings)


def names(slots: list[Slot]) -> str:
    """«a0 a1 b0»: hosts and the numbers of their devices."""
    return " ".join(f"{slot.host.name}{slot.device.index}" for slot in slots)


def placed(config: Config, workers: int, there: AvailableDevices, schedulers: int = 0) -> tuple[str, str]:
    """Workers, and all others."""
    slots = place_processes(config, workers, there, schedulers)
    return names(slots[:workers]), names(slots[workers:])


APART = {"server_placement": "apart"}


@pytest.mark.parametrize(
    ("config", "workers", "there", "expected"),
    [
        # one host is filled before the next, in their order
        (make_config(), 1, available(2, 2, 2), ("a0", "")),
        (make_config(), 3, available(2, 2, 2), ("a0 a1 b0", "")),
        (make_config(), 6, available(2, 2, 2), ("a0 a1 b0 b1 c0 c1", "")),
        (make_config(), 5, available(1, 3, 2), ("a0 b0 b1 b2 c0", "")),
        # servers beside the workers are spread over their hosts
        (ps(3), 4, available(2, 2, 2), ("a0 a1 b0 b1", "a0 b0 a1")),
        (ps(2), 2, available(2, 2), ("a0 a1", "a0 a1")),
        # as in the Slurm study: the first ceil(servers / per host) hosts, whatever workers they have
        (ps(3, servers_per_host=2), 6, available(2, 2, 2), ("a0 a1 b0 b1 c0 c1", "a0 a1 b0")),
        # servers apart have the first hosts for themselves; on one machine they take the devices after the workers'
        (ps(2, **APART), 3, available(2, 2, 2, 2), ("c0 c1 d0", "a0 b0")),
        (ps(3, servers_per_host=2, **APART), 3, available(2, 2, 2, 2), ("c0 c1 d0", "a0 a1 b0")),
        (ps(2, **APART), 2, available(4), ("a0 a1", "a2 a3")),
    ],
)
def test_slots(config: Config, workers: int, there: AvailableDevices, expected: tuple[str, str]) -> None:
    assert placed(config, workers, there) == expected


def test_servers_take_no_gpus_and_hosts_are_counted() -> None:
    slots = place_processes(ps(2, device="cuda"), 4, available(2, 2, kind="cuda"))
    assert [slot.device for slot in slots[4:]] == [Device("cpu", 0, ()), Device("cpu", 1, ())]
    assert [slot.host.name for slot in slots[4:]] == ["a", "b"]
    assert placed(ps(1, **APART), 2, available(2, 2), 1) == ("b0 b1", "a0 b0")
    there = available(2, 2, 2)
    assert [count_hosts(make_config(), workers, there) for workers in (1, 2, 3, 6)] == [1, 1, 2, 3]
    assert count_hosts(ps(1, server_placement="apart"), 1, there) == 2
    assert count_hosts(make_config(placement="round-robin"), 2, there) == 2


@pytest.mark.parametrize(
    ("servers", "workers", "expected"),
    [
        (0, 4, ("a0 b0 c0 a1", "")),
        (1, 2, ("b0 c0", "a0")),
        (2, 4, ("c0 a0 b0 c1", "a0 b0")),
        (4, 2, ("b0 c0", "a0 b0 c0 a1")),
    ],
)
def test_round_robin_takes_hosts_in_turn_servers_first(servers: int, workers: int, expected: tuple[str, str]) -> None:
    """Process i is on host i modulo the number of hosts; 0 … S-1 are servers, S … S+W-1 workers."""
    config = make_config(strategy="ps" if servers else "allreduce", servers=servers, placement="round-robin")
    there = available(2, 2, 2)
    assert placed(config, workers, there) == expected
    dealt = place_processes(config, workers, there)
    in_dmlcs_order = [slot.host.name for slot in dealt[workers:] + dealt[:workers]]
    assert in_dmlcs_order == ["abc"[number % 3] for number in range(servers + workers)]


@pytest.mark.parametrize(
    ("config", "there", "most"),
    [
        (make_config(), available(2, 2, 2), 6),
        (ps(3), available(2, 2), 4),
        (ps(2, server_placement="apart"), available(2, 2, 2), 2),
        (ps(4, server_placement="apart", servers_per_host=2), available(2, 2, 2), 2),
        (ps(1, server_placement="apart"), available(4), 3),
        (make_config(placement="round-robin"), available(2, 2), 4),
        (make_config(placement="round-robin"), available(1, 4), 2),  # a third worker would be dealt to the first host
        (ps(1, placement="round-robin"), available(1, 4), 3),
    ],
)
def test_the_longest_ladder_that_there_is_room_for(config: Config, there: AvailableDevices, most: int) -> None:
    assert count_most_workers(config, there) == most
    check_room(config, most, there)
    place_processes(config, most, there)
    with pytest.raises(InputError):
        check_room(config, most + 1, there)


@pytest.mark.parametrize(
    ("config", "workers", "there", "message"),
    [
        (
            make_config(),
            12,
            available(4, 4),
            "12 workers need 3 hosts of 4 devices; there are 2 hosts with 4 CPU devices each; valid: 1 … 8 workers",
        ),
        (
            ps(2, **APART),
            5,
            available(4, 4, 4),
            "5 workers need 2 hosts of 4 devices, and 2 servers 2 more of their own; there are 3 hosts with 4 CPU"
            " devices each; valid: 1 … 4 workers",
        ),
        (
            ps(2, **APART),
            1,
            available(1, 1),
            "1 worker needs 1 host of 1 device, and 2 servers 2 more of their own; there are 2 hosts with 1 CPU devices"
            " each",
        ),
        (ps(5, servers_per_host=2), 1, available(2, 2), "5 servers, 2 a host, need 3 hosts; there are 2"),
        (ps(5, servers_per_host=2, **APART), 1, available(2, 2), "5 servers, 2 a host, need 3 hosts; there are 2"),
    ],
)
def test_too_few_hosts(config: Config, workers: int, there: AvailableDevices, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_room(config, workers, there)
    assert str(caught.value) == message


def test_a_plan_ends_with_all_devices_of_its_hosts_or_is_refused() -> None:
    with pytest.raises(InputError, match="12 workers need 3 hosts of 4 devices; there are 2 hosts"):
        plan(available(4, 4), models=("mnist:8",), max_devices=12)
    assert list(plan(available(2, 2, 2), models=("mnist:8",)).ladders.values()) == [(1, 2, 4, 6)]


# ---- ps:each: servers on every host that has workers

THREE_HOSTS = available(2, 2, 2)


def plan_each(**settings: Any) -> Plan:
    return plan(THREE_HOSTS, **{"models": ("mnist:8",), "strategies": ("ps:each",), **settings})


def jobs(made: Plan, devices: int) -> list[tuple[str, str, int]]:
    """Return role, host and number of servers of every process, as its job has them."""
    trial = Trial(made.configs[0], devices, 0)
    slots = place_trial(trial, THREE_HOSTS)
    ports = {host: list(range(1000, 1000 + count)) for host, count in count_ports(slots).items()}
    settings = TrialSettings(Measure(), seed=1, pythons={"torch": "python", "mxnet": "python"})
    trial_jobs = build_jobs(trial, slots, ports, settings)
    return [(job.role, slot.host.name, job.servers) for job, slot in zip(trial_jobs, slots, strict=True)]


def test_the_number_of_servers_grows_with_the_hosts() -> None:
    made = plan_each()
    assert list(made.ladders.values()) == [(1, 2, 4, 6)]
    servers = {n: [host for role, host, _ in jobs(made, n) if role == "server"] for _, n in made.points}
    assert servers == {1: ["a"], 2: ["a"], 4: ["a", "b"], 6: ["a", "b", "c"]}
    assert {count for _, _, count in jobs(made, 4)} == {2}
    made = plan_each(servers_per_host=2, frameworks=("mxnet",))
    assert [role for role, _, _ in jobs(made, 4)] == ["worker"] * 4 + ["server"] * 4 + ["scheduler"]
    assert [host for role, host, _ in jobs(made, 4) if role == "server"] == ["a", "b", "a", "b"]
    (config,) = plan_each().configs
    assert config.strategy_label == "ps:each"
    assert config.key != plan_each(strategies=("ps:1",)).configs[0].key
    assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server_placement": "apart"}, "strategy 'ps:each': not with servers apart"),
        ({"placement": "round-robin"}, "strategy 'ps:each': not with round-robin placement"),
        ({"strategies": ("allreduce:each",)}, "only ps and ps-async take a number of servers"),
    ],
)
def test_settings_that_contradict_it_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_each(**settings)
