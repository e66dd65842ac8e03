"""What trials must compute is computed in a process of its own, once, and kept in the user's cache."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import graph_nets
import numpy as np
import pytest
import small_sets

from trainscale.analyse.witness import Expectation
from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext
from trainscale.measure.expectations import Expectations, estimate_seconds, find_expectation_file
from trainscale.spec.config import Trial
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.events import FrameworkFacts
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Device


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph_nets.register()


def plan_for(
    strategy: str = "allreduce", framework: str = "torch", model: str = "plain-graph:4", **settings: object
) -> Plan:
    experiment = Experiment.of(models=(model,), frameworks=(framework,), strategies=(strategy,), **settings)  # type: ignore[arg-type]
    return make_plan(experiment, two_devices(find_local_devices(read_machine(), experiment)))


def two_devices(available: AvailableDevices) -> AvailableDevices:
    """Return this machine with two devices, however many cores it has."""
    host = replace(available.hosts[0], devices=(Device(index=0), Device(index=1)))
    return replace(available, hosts=(host,))


def context_for(plan: Plan) -> RunContext:
    names = {config.framework for config in plan.configs}
    return RunContext(
        plan,
        LocalLauncher(),
        dict.fromkeys(names, sys.executable),  # it has numpy; no framework is imported
        {name: FrameworkFacts(True) for name in names},
    )


def expect(plan: Plan, workers: int = 1, lines: list[str] | None = None) -> Expectation:
    report = (lines if lines is not None else []).append
    expectation = Expectations(context_for(plan), report).find(Trial(plan.configs[0], workers, 0))
    assert isinstance(expectation, Expectation), expectation
    return expectation


@pytest.mark.processes
@pytest.mark.parametrize(
    ("strategy", "framework", "steps", "totals"),
    [
        ("allreduce", "torch", 2, 1),
        ("independent", "jax", 2, 2),
        ("ps-async:1", "mxnet", 1, 2),
        ("ps-async:1", "tensorflow", 1, 1),
    ],
)
def test_two_workers_are_expected_by_their_strategy(strategy: str, framework: str, steps: int, totals: int) -> None:
    expectation = expect(plan_for(strategy, framework), workers=2)
    assert [len(losses) for losses in expectation.losses] == [2] * steps
    assert expectation.losses[0] == pytest.approx([np.log(10)] * 2, rel=0.2)
    assert [len(total) for total in expectation.totals] == [64] * totals
    assert expectation.sketches.keys() == expectation.spreads.keys()
    assert len(expectation.sketches) == 8
    added = np.sum(list(expectation.sketches.values()), axis=0)
    assert added == pytest.approx(expectation.totals[-1], rel=1e-9, abs=1e-12)
    assert len(expectation.loss_spreads) == steps
    assert 0 < expectation.total_spread < 1e-3
    assert expectation.arithmetic == "fp64"


@pytest.mark.processes
def test_one_worker_is_expected_too() -> None:
    expectation = expect(plan_for("local", model="mnist:4"))
    assert [len(losses) for losses in expectation.losses] == [1, 1]
    assert expectation.losses[0] > expectation.losses[1]


@pytest.mark.processes
def test_it_is_computed_once_for_all_frameworks_layouts_and_runs() -> None:
    lines: list[str] = []
    first = expect(plan_for(layout="nchw"), 2, lines)
    assert lines[0] == "computing what the first steps of plain-graph (batch 4, 2 workers) must give"
    assert len(lines) == 2
    for plan in (plan_for(layout="nhwc"), plan_for(framework="jax"), plan_for("ps:1", "mxnet")):
        assert expect(plan, 2, lines) == first
    assert len(lines) == 2
    expectations = Expectations(context_for(plan_for()), lines.append)
    trial = Trial(plan_for().configs[0], 2, 0)
    assert expectations.find(trial) is expectations.find(replace(trial, repeat=3))


def test_whatever_changes_the_numbers_changes_their_place() -> None:
    def place(plan: Plan, workers: int = 2) -> str:
        return find_expectation_file(plan, Trial(plan.configs[0], workers, 0)).name

    plans = [
        plan_for(),
        plan_for(model="plain-graph:5"),
        plan_for(model="resnet50-cifar:4"),
        plan_for("independent"),
        plan_for("ps-async:1"),
        plan_for("ps-async:1", "tensorflow"),
        plan_for(precision="bf16"),
        plan_for(learning_rate=0.5),
        plan_for(momentum=0.5),
        plan_for(weight_decay=0.5),
        plan_for(seed=5),
        plan_for(classes=7),
        plan_for(image_size=20),
    ]
    assert len({*map(place, plans), place(plan_for(), workers=1)}) == len(plans) + 1


@pytest.mark.processes
def test_real_images_are_those_of_the_ranks_in_both_steps(tmp_path: Path) -> None:
    folder = small_sets.write_cifar10(tmp_path / "small" / "cifar10")
    plan = plan_for(model="plain-graph:2", data=f"cifar10:{folder}")
    two = expect(plan, 2)
    synthetic = expect(plan_for(model="plain-graph:2", image_size=32), 2)
    assert {*two.losses[0]}.isdisjoint(synthetic.losses[0])
    assert two.losses[0][0] != two.losses[0][1]
    before = find_expectation_file(plan, Trial(plan.configs[0], 2, 0))
    os.utime(folder / "test_batch.bin", (1, 1))
    assert find_expectation_file(plan, Trial(plan.configs[0], 2, 0)) != before


@pytest.mark.parametrize(
    ("model", "origin"), [("torchvision:resnet18", "a network of torchvision"), ("nets:plain", "your own network")]
)
def test_a_network_that_comes_by_reference_has_none(model: str, origin: str) -> None:
    plan = plan_for("local", model=f"{model}:2")
    reason = Expectations(context_for(plan), lambda _: None).find(Trial(plan.configs[0], 1, 0))
    assert reason == f"it is {origin}, and only the networks that trainscale defines are computed a second time"


@pytest.mark.processes
def test_a_process_that_fails_is_explained_and_not_started_again() -> None:
    plan = plan_for("local", model="vgg16:100000")
    lines: list[str] = []
    expectations = Expectations(context_for(plan), lines.append)
    trial = Trial(plan.configs[0], 1, 0)
    reason = expectations.find(trial)
    assert isinstance(reason, str)
    assert reason.startswith("no memory for the reference: it needs ")
    assert reason.endswith(" GB are free")
    assert expectations.find(trial) == reason
    assert lines == ["computing what the first steps of vgg16 (batch 100000, 1 worker) must give", f"  {reason}"]


@pytest.mark.processes
def test_the_time_that_expectations_will_take_is_estimated() -> None:
    plan, larger = plan_for("allreduce"), plan_for("allreduce", model="plain-graph:40")
    assert estimate_seconds(larger) == pytest.approx(10 * estimate_seconds(plan))
    assert estimate_seconds(plan) > 0
    for _, workers in plan.points:
        expect(plan, workers)
    assert estimate_seconds(plan) == 0
    assert estimate_seconds(plan_for("local", model="torchvision:resnet18:2")) == 0
