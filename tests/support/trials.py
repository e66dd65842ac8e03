"""Runs one trial in real processes, as a run would, and gives back its record and the weights of every rank."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainscale.cluster.devices import supply
from trainscale.cluster.machine import look
from trainscale.launch.local import LocalLauncher
from trainscale.launch.placement import free_ports, place
from trainscale.launch.supervise import supervise
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.job import Measure

SUPPORT = str(Path(__file__).parent)


@dataclass(frozen=True)
class Outcome:
    record: TrialRecord
    weights: list[dict[str, np.ndarray]]


def run_trial(
    folder: Path,
    *,
    devices: int = 1,
    measure: Measure | None = None,
    timeout_seconds: float = 120.0,
    stall_seconds: float = 60.0,
    python: str = sys.executable,
    **settings: object,
) -> Outcome:
    """``settings`` are those of an Experiment; the network is nets.plain on 16×16 images unless told otherwise."""
    experiment = Experiment(
        **{  # type: ignore[arg-type]
            "models": ("nets:plain:8",),
            "image_size": 16,
            "classes": 10,
            "strategies": ("allreduce",),
            "devices": (devices,),
            **settings,
        }
    )
    plan = make_plan(experiment, supply(look(), experiment))
    trial = Trial(plan.configs[0], devices, 0)
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    processes = place(
        trial,
        plan.supply.devices,
        measure or Measure(warmup=2, steps=4),
        seed=experiment.seed,
        pythons={"torch": python},
        ports=free_ports(2),  # type: ignore[arg-type]
        save_weights=weights,
    )
    processes = [replace(p, job=replace(p.job, python_path=(SUPPORT,))) for p in processes]
    record = supervise(
        trial,
        processes,
        LocalLauncher(),
        timeout_seconds=timeout_seconds,
        stall_seconds=stall_seconds,
        logs=folder / "logs",
    )
    saved = sorted(weights.glob("rank*.npz"))
    return Outcome(record, [dict(np.load(path)) for path in saved])


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)
