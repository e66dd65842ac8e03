"""Which frameworks of a plan can be used, from what they answered when the hosts were visited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from this_machine_launcher import ThisMachineLauncher

from trainscale.cluster.hosts import find_devices
from trainscale.errors import InputError, TrainscaleError
from trainscale.launch.hosts import connect_cluster
from trainscale.launch.launchers.target import Target
from trainscale.measure.context import RunContext
from trainscale.measure.measure import check_frameworks, make_probe_requests
from trainscale.spec.devices import Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.spec.settings import SettingGroup
from trainscale.worker.events import FrameworkFacts
from trainscale.worker.inspection.host import HostFacts, Machine

MACHINE = Machine("node", "CPU", (0, 1), 1, 8 << 30, 8 << 30, (), "", 0.0, 0.0)
EXPERIMENT = Experiment.of(models=("mnist:8",), frameworks=("torch", "jax"), devices=(2,), hosts="my nodes")
GOOD = FrameworkFacts(True, version="2.13.0")


def check(**answers: list[FrameworkFacts]) -> RunContext:
    """``answers`` has those of node1 and node2 of each framework."""
    hosts = {
        f"node{n + 1}": HostFacts(MACHINE, probes={name: facts[n] for name, facts in answers.items()}) for n in range(2)
    }
    devices = find_devices([Host(name, facts=facts) for name, facts in hosts.items()], EXPERIMENT)
    context = RunContext(make_plan(EXPERIMENT, devices), ThisMachineLauncher(list(hosts)), {})
    return check_frameworks(context, hosts)


def test_a_framework_that_one_host_lacks_is_missing_and_the_others_are_used() -> None:
    lacking = FrameworkFacts(False, "no module 'jax' in this Python", "trainscale env create jax")
    context = check(torch=[GOOD, GOOD], jax=[GOOD, lacking])
    assert context.frameworks == {"torch": GOOD}
    assert context.missing == {
        "jax": "node2: no module 'jax' in this Python; get it with: trainscale env create jax",
    }


def test_two_versions_of_a_framework_are_not_compared() -> None:
    context = check(torch=[GOOD, replace(GOOD, version="2.12.0")], jax=[GOOD, GOOD])
    assert context.missing == {"torch": "the hosts have different versions: node1 2.13.0, node2 2.12.0"}


def test_frameworks_that_no_host_has_are_wrong_input() -> None:
    with pytest.raises(InputError) as raised:
        check(torch=[FrameworkFacts(False, "gone")] * 2, jax=[FrameworkFacts(False, "gone")] * 2)
    assert str(raised.value).splitlines() == [
        "framework 'torch': node1: gone",
        "framework 'jax': node1: gone",
        "  see: trainscale check --hosts 'my nodes'",
    ]


def test_a_users_network_that_cannot_be_built_is_wrong_input() -> None:
    answer = replace(GOOD, models={"nets:mine": "TypeError: no"})
    with pytest.raises(InputError, match="model 'nets:mine' cannot be built: TypeError: no"):
        check(torch=[answer, answer], jax=[GOOD, GOOD])


def test_a_probe_builds_the_users_networks_and_no_others() -> None:
    experiment = Experiment.of(models=("mnist:8", "nets:mine:4"), frameworks=("torch",), classes=7)
    (request,) = make_probe_requests(experiment)
    assert [(config.model, config.classes) for config in request.models] == [("nets:mine", 7)]


@pytest.mark.processes
def test_a_host_that_does_not_answer_is_no_wrong_input() -> None:
    launcher = ThisMachineLauncher(["node1", "node2"], {"node2": "echo No route to host >&2; exit 255"})
    with pytest.raises(TrainscaleError) as raised:
        connect_cluster(Target(ThisMachineLauncher, launcher.access, SettingGroup()), EXPERIMENT, {}, launcher)
    assert raised.value.exit_code == 1
    first, last = str(raised.value).splitlines()
    assert first.startswith("node2: no route: ")
    assert last.startswith("  see: trainscale check --hosts FILE")
