"""Runs one trial in real processes, as a run would, and returns its record and the weights of every rank."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import graph_nets
import numpy as np
from environments import python_for
from forked_frameworks import launcher_for

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch import tasks
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure import context as one_trial
from trainscale.measure.context import RunContext
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.devices import Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import read_machine
from trainscale.worker.job import Measure

SUPPORT = str(Path(__file__).parent)


@dataclass(frozen=True)
class Computed:
    """Counts, and arrays "logits/0", "losses", "before/NAME", "after/NAME"."""

    facts: dict[str, Any]
    numbers: dict[str, np.ndarray]

    def distance(self, other: Computed, part: str) -> float:
        """Return the largest difference of arrays whose names begin with ``part``, relative to their largest values."""
        names = [name for name in self.numbers if name.startswith(part)]
        assert names
        assert names == [name for name in other.numbers if name.startswith(part)]
        return max(
            float(np.abs(self.numbers[name] - other.numbers[name]).max() / (np.abs(self.numbers[name]).max() or 1))
            for name in names
        )


@dataclass(frozen=True)
class TrialOutcome:
    record: TrialRecord
    weights: list[dict[str, np.ndarray]]


def run_trial(
    folder: Path,
    *,
    devices: int = 1,
    measure: Measure | None = None,
    timeout_seconds: float = 120.0,
    stall_seconds: float = 60.0,
    framework: str = "torch",
    python: str | None = None,
    forks: bool = False,
    hosts: int = 1,
    **settings: object,
) -> TrialOutcome:
    """Run a trial. ``settings`` are those of an Experiment. The default network is nets.plain (for torch) on 16×16
    images; plain-graph is the same for every framework. If it ``forks``, its ranks are forked from a process that has
    imported the framework, which is much faster; use this where a test is about what a framework computes. With
    several ``hosts``, node1 and so on are keepers of their own on this machine, each with one device.
    """
    experiment = Experiment.of(
        **{  # type: ignore[arg-type]
            "models": ("nets:plain:8",),
            "image_size": 16,
            "classes": 10,
            "strategies": ("allreduce",),
            "frameworks": (framework,),
            "devices": (devices,),
            "timeout": timeout_seconds,
            "stall_timeout": stall_seconds,
            **settings,
        }
    )
    graph_nets.register()
    available = find_local_devices(read_machine(), experiment)
    if hosts > 1:
        named = [
            Host(alias=f"node{number + 1}", interface="lo", devices=(available.hosts[0].devices[number],))
            for number in range(hosts)
        ]
        available = replace(available, hosts=tuple(named))
    plan = make_plan(experiment, available)
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    os.chdir(SUPPORT)  # ranks find the networks of the tests there
    try:
        python = python or python_for(framework)
        launcher = launcher_for(python, framework, plan.configs[0].precision) if forks else LocalLauncher()
        record = one_trial.run_trial(
            RunContext(plan, launcher, {framework: python}, logs=folder / "logs"),
            Trial(plan.configs[0], devices, 0),
            measure or Measure(warmup=2, steps=4),
            save_weights=weights,
        )
    finally:
        os.chdir(here)
    saved = sorted(weights.glob("rank*.npz"))
    return TrialOutcome(record, [dict(np.load(path)) for path in saved])


def compute_parity(framework: str, model: str, precision: str, **settings: object) -> Computed:
    """Return what a framework computes for a parity check: three steps in float64 or in float32."""
    graph_nets.register()
    experiment = Experiment.of(models=(f"{model}:4",), frameworks=(framework,), strategies=("local",), **settings)  # type: ignore[arg-type]
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    site, config = plan.available.hosts[0], plan.configs[0]
    python = python_for(framework)
    computed = tasks.compute_parity_numbers(
        launcher_for(python, framework, precision),
        site,
        python,
        replace(config, precision=precision),
        site.devices[0],
        experiment.work.seed,
    )
    facts = json.loads(computed.head)
    ends = np.cumsum(list(facts["arrays"].values()))
    arrays = np.split(np.frombuffer(computed.values), ends)
    assert not len(arrays.pop())
    return Computed(facts, dict(zip(facts["arrays"], arrays, strict=True)))


def largest_difference(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    assert first.keys() == second.keys()
    return max(float(np.abs(first[name] - second[name]).max()) for name in first)
