"""An experiment that is written as TOML is read back as the same experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trainscale.launch.launchers.slurm import SlurmSettings
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment, make_experiment
from trainscale.spec.experiment_file import format_experiment


def written_and_read(experiment: Experiment, folder: Path) -> Experiment:
    path = folder / "experiment.toml"
    path.write_text(format_experiment(experiment))
    return make_experiment({}, path, launcher_groups=(SlurmSettings,))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "models": ("alexnet:auto", "timm:resnet18:8"),
            "frameworks": ("torch", "jax"),
            "strategies": ("ps:2", "local"),
        },
        {"batch": AUTO, "max_batch": 64, "compile": True, "augment": False, "parity": False},
        {"batch": (4, AUTO), "precision": ("fp32", "bf16"), "layout": ("nchw", "nhwc"), "compile": (True, False)},
        {"search": "default"},
        {"budget": 300.0, "warmup": 3},
        {"epochs": 5, "repeats": 5, "timeout": 1800.0, "schedule": "step:30,60:0.5", "learning_rate": 1e-05},
        {"until_accuracy": 0.99},
        {"devices": (1, 2, 3), "data": "imagefolder:/a, b"},
        {"setup": ("module load 'a b'; x", 'echo "\\"'), "sbatch": ("--comment=a, b", "-C big"), "nodes": 4},
        {"account": 'tab\tquote"backslash\\del\x7f\u2026\U0001f600'},
        {"python": (("torch", sys.executable), ("keras-torch", sys.executable))},
    ],
)
def test_an_experiment_survives_its_file(settings: dict[str, Any], tmp_path: Path) -> None:
    experiment = make_experiment(settings, launcher_groups=(SlurmSettings,))
    assert written_and_read(experiment, tmp_path) == experiment
