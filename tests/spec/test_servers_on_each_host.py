"""The strategy ``ps:each``: one parameter server on every host that has workers."""

from __future__ import annotations

from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.launch.trial.jobs import TrialSettings, build_jobs, count_ports, place_trial
from trainscale.spec.config import Config, Trial
from trainscale.spec.devices import AvailableDevices, Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Device, Measure

CORES = tuple(Device("cpu", n, (n,)) for n in range(2))
AVAILABLE = AvailableDevices(
    "cpu",
    tuple(Host(f"10.0.0.{n}", f"node{n}", interface="eth0", devices=CORES) for n in (1, 2, 3)),
    1,
    "3 hosts",
)


def plan(**settings: Any) -> Plan:
    values = {"models": ("mnist:8",), "strategies": ("ps:each",), **settings}
    return make_plan(Experiment.of(**values), AVAILABLE)


def jobs(made: Plan, devices: int) -> list[tuple[str, str, int]]:
    """Return role, host and number of servers of every process, as its job has them."""
    trial = Trial(made.configs[0], devices, 0)
    slots = place_trial(trial, AVAILABLE)
    ports = {host: list(range(1000, 1000 + count)) for host, count in count_ports(slots).items()}
    settings = TrialSettings(Measure(), seed=1, pythons={"torch": "python", "mxnet": "python"})
    trial_jobs = build_jobs(trial, slots, ports, settings)
    return [(job.role, slot.host.name, job.servers) for job, slot in zip(trial_jobs, slots, strict=True)]


def test_the_number_of_servers_grows_with_the_hosts() -> None:
    made = plan()
    assert made.ladders == ((1, 2, 4, 6),)
    servers = {n: [host for role, host, _ in jobs(made, n) if role == "server"] for n in made.ladders[0]}
    assert servers == {1: ["node1"], 2: ["node1"], 4: ["node1", "node2"], 6: ["node1", "node2", "node3"]}
    assert {count for _, _, count in jobs(made, 4)} == {2}


def test_several_on_each_host_and_a_scheduler_after_them() -> None:
    made = plan(servers_per_host=2, frameworks=("mxnet",))
    assert [role for role, _, _ in jobs(made, 4)] == ["worker"] * 4 + ["server"] * 4 + ["scheduler"]
    assert [host for role, host, _ in jobs(made, 4) if role == "server"] == ["node1", "node2", "node1", "node2"]


def test_its_label_is_what_is_typed_and_its_config_differs_from_that_of_any_number() -> None:
    (config,) = plan().configs
    assert config.strategy_label == "ps:each"
    assert config.key != plan(strategies=("ps:1",)).configs[0].key
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
        plan(**settings)
