"""Who goes where: one host filled before the next, servers beside or apart, and dealt out as dmlc did."""

from __future__ import annotations

from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.spec.config import Config
from trainscale.spec.devices import (
    AvailableDevices,
    Host,
    Slot,
    check_room,
    count_hosts,
    count_most_workers,
    count_server_hosts,
    place_processes,
)
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.job import Device


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


@pytest.mark.parametrize(
    ("workers", "where"), [(1, "a0"), (2, "a0 a1"), (3, "a0 a1 b0"), (4, "a0 a1 b0 b1"), (6, "a0 a1 b0 b1 c0 c1")]
)
def test_one_host_is_filled_before_the_next_is_begun(workers: int, where: str) -> None:
    assert placed(make_config(), workers, available(2, 2, 2)) == (where, "")


def test_hosts_of_different_sizes_are_filled_in_their_order() -> None:
    assert placed(make_config(), 5, available(1, 3, 2)) == ("a0 b0 b1 b2 c0", "")


def test_servers_beside_are_spread_over_the_hosts_of_the_workers() -> None:
    assert placed(ps(3), 4, available(2, 2, 2)) == ("a0 a1 b0 b1", "a0 b0 a1")


def test_servers_beside_stay_where_the_workers_are() -> None:
    assert placed(ps(2), 2, available(2, 2)) == ("a0 a1", "a0 a1")


def test_servers_per_host_fill_the_first_hosts_as_the_slurm_study_did() -> None:
    """The first ceil(servers / per host) hosts, whatever workers they have."""
    assert placed(ps(3, servers_per_host=2), 6, available(2, 2, 2)) == ("a0 a1 b0 b1 c0 c1", "a0 a1 b0")
    assert count_server_hosts(ps(3, servers_per_host=2), available(2, 2, 2)) == 2


def test_servers_apart_have_the_first_hosts_for_themselves() -> None:
    assert placed(ps(2, server_placement="apart"), 3, available(2, 2, 2, 2)) == ("c0 c1 d0", "a0 b0")


def test_servers_apart_may_share_a_host() -> None:
    config = ps(3, server_placement="apart", servers_per_host=2)
    assert placed(config, 3, available(2, 2, 2, 2)) == ("c0 c1 d0", "a0 a1 b0")


def test_servers_apart_on_one_machine_take_the_devices_after_the_workers() -> None:
    assert placed(ps(2, server_placement="apart"), 2, available(4)) == ("a0 a1", "a2 a3")


def test_servers_on_a_host_of_gpus_take_none_of_them() -> None:
    slots = place_processes(ps(2, device="cuda"), 4, available(2, 2, kind="cuda"))
    assert [slot.device for slot in slots[4:]] == [Device("cpu", 0, ()), Device("cpu", 1, ())]
    assert [slot.host.name for slot in slots[4:]] == ["a", "b"]


def test_a_scheduler_is_placed_beside_the_first_worker() -> None:
    assert placed(ps(1, server_placement="apart"), 2, available(2, 2), 1) == ("b0 b1", "a0 b0")


@pytest.mark.parametrize(
    ("servers", "workers", "expected"),
    [
        (0, 4, ("a0 b0 c0 a1", "")),
        (1, 2, ("b0 c0", "a0")),
        (2, 4, ("c0 a0 b0 c1", "a0 b0")),
        (4, 2, ("b0 c0", "a0 b0 c0 a1")),
    ],
)
def test_round_robin_takes_the_hosts_in_turn_as_dmlc_did_servers_first(
    servers: int, workers: int, expected: tuple[str, str]
) -> None:
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


def test_the_hosts_of_a_trial_are_counted() -> None:
    there = available(2, 2, 2)
    assert [count_hosts(make_config(), workers, there) for workers in (1, 2, 3, 6)] == [1, 1, 2, 3]
    assert count_hosts(ps(1, server_placement="apart"), 1, there) == 2
    assert count_hosts(make_config(placement="round-robin"), 2, there) == 2


def refusal(config: Config, workers: int, there: AvailableDevices) -> str:
    with pytest.raises(InputError) as caught:
        check_room(config, workers, there)
    return str(caught.value)


def test_too_few_hosts_are_refused_with_the_number_that_is_needed() -> None:
    assert refusal(make_config(), 12, available(4, 4)) == (
        "12 workers need 3 hosts of 4 devices; there are 2 hosts with 4 CPU devices each; valid: 1 … 8 workers"
    )


def test_the_refusal_counts_the_hosts_of_servers_apart() -> None:
    assert refusal(ps(2, server_placement="apart"), 5, available(4, 4, 4)) == (
        "5 workers need 2 hosts of 4 devices, and 2 servers 2 more of their own;"
        " there are 3 hosts with 4 CPU devices each; valid: 1 … 4 workers"
    )


def test_servers_that_take_every_host_leave_none_for_a_worker() -> None:
    assert refusal(ps(2, server_placement="apart"), 1, available(1, 1)) == (
        "1 worker needs 1 host of 1 device, and 2 servers 2 more of their own;"
        " there are 2 hosts with 1 CPU devices each"
    )


@pytest.mark.parametrize("placement", ["beside", "apart"])
def test_more_servers_than_the_hosts_have_room_for_are_refused(placement: str) -> None:
    config = ps(5, server_placement=placement, servers_per_host=2)
    assert refusal(config, 1, available(2, 2)) == "5 servers, 2 a host, need 3 hosts; there are 2"


def test_a_plan_is_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match="12 workers need 3 hosts of 4 devices; there are 2 hosts"):
        make_plan(Experiment.of(models=("mnist:8",), max_devices=12), available(4, 4))


def test_the_ladder_of_a_cluster_ends_with_all_its_devices() -> None:
    plan = make_plan(Experiment.of(models=("mnist:8",)), available(2, 2, 2))
    assert plan.ladders == ((1, 2, 4, 6),)
