"""``plan`` shows the placement of processes: once for each strategy and device count, readable on a narrow terminal."""

import io

import pytest
import this_machine
from rich.console import Console

from trainscale.cli.plan import _make_placement_table, _make_points_table
from trainscale.spec.devices import AvailableDevices, Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.job import Device


def cpus(hosts: int, devices: int = 2) -> AvailableDevices:
    slots = tuple(Device("cpu", n, (n,)) for n in range(devices))
    sites = tuple(Host(f"10.0.0.{n}", f"node{n}", interface="eth0", devices=slots) for n in range(1, hosts + 1))
    return AvailableDevices("cpu", sites, 1, f"{hosts} hosts with {devices} CPU devices each", "a CPU", 8 << 30)


def gpus(hosts: int, devices: int = 8) -> AvailableDevices:
    slots = tuple(Device("cuda", n) for n in range(devices))
    sites = tuple(Host(f"10.0.0.{n}", f"gpu{n:02}", interface="eth0", devices=slots) for n in range(1, hosts + 1))
    return AvailableDevices(
        "cuda", sites, 0, f"{hosts} hosts with {devices} GPU devices each", "NVIDIA H200", 141 << 30
    )


def shown(supply: AvailableDevices, what=_make_placement_table, width: int = 80, **settings: object) -> list[str]:
    experiment = Experiment.of(**{"models": ("mnist:8", "alexnet:8"), **settings})  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(what(make_plan(experiment, supply)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_one_host_is_filled_before_the_next_and_said_once_for_all_networks() -> None:
    assert shown(cpus(2), strategies=("allreduce", "ps:2")) == [
        "placement of processes, by core",
        "allreduce  1  node1: worker 0",
        "           2  node1: workers 0 1",
        "           4  node1, node2: workers 0 1",
        "ps:2       1  node1: worker 0, servers 0 0",
        "           2  node1: workers 0 1, servers 0 1",
        "           4  node1, node2: workers 0 1, server 0",
    ]


def test_servers_apart_have_hosts_of_their_own() -> None:
    assert shown(cpus(3), strategies=("ps:2",), server_placement="apart", servers_per_host=2) == [
        "placement of processes, by core",
        "ps:2  1  node2: worker 0",
        "         node1: servers 0 1",
        "      2  node2: workers 0 1",
        "         node1: servers 0 1",
        "      4  node2, node3: workers 0 1",
        "         node1: servers 0 1",
    ]


def test_many_alike_hosts_are_one_line() -> None:
    *_, last = shown(gpus(64), strategies=("allreduce",), devices=(512,))
    assert last == "allreduce  512  gpu01 … gpu64, 64 hosts: workers 0-7"


def test_a_server_on_a_host_of_gpus_takes_none_of_them() -> None:
    *_, last = shown(gpus(2), strategies=("ps:4",), devices=(16,), models=("mnist:8",))
    assert last == "ps:4  16  gpu01, gpu02: workers 0-7, 2 servers"


@pytest.mark.parametrize("width", [80, 120])
def test_every_point_is_one_line_with_its_number_of_hosts(width: int) -> None:
    lines = shown(cpus(2), _make_points_table, width, strategies=("allreduce",))
    assert [line.split()[:4] for line in lines[2:]] == [
        [model, "allreduce", str(devices), str(hosts)]
        for model in ("mnist", "alexnet")
        for devices, hosts in ((1, 1), (2, 1), (4, 2))
    ]
    assert "who" not in lines[1]


def test_on_one_machine_there_is_no_word_of_hosts() -> None:
    lines = shown(this_machine.cpus(4), _make_points_table, strategies=("ps:1",))
    assert "hosts" not in lines[1]
    assert lines[1].endswith("on core")
    assert lines[-1].endswith("0-3, server 0")
