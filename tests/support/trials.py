"""Runs one trial in real processes, as a run would, and gives back its record and the weights of every rank."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainscale.cluster.devices import supply
from trainscale.cluster.machine import look
from trainscale.launch.local import LocalLauncher
from trainscale.record.trial import TrialRecord
from trainscale.run import trial as one_trial
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
            "timeout": timeout_seconds,
            "stall_timeout": stall_seconds,
            **settings,
        }
    )
    plan = make_plan(experiment, supply(look(), experiment))
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    here = Path.cwd()
    os.chdir(SUPPORT)  # where ranks find the networks of the tests
    try:
        record = one_trial.run_trial(
            Trial(plan.configs[0], devices, 0),
            measure or Measure(warmup=2, steps=4),
            plan,
            LocalLauncher(),
            {"torch": python},
            logs=folder / "logs",
            save_weights=weights,
        )
    finally:
        os.chdir(here)
    saved = sorted(weights.glob("rank*.npz"))
    return Outcome(record, [dict(np.load(path)) for path in saved])


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)
