"""An experiment that is written as TOML is read back as the same experiment."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trainscale.launch.launchers.settings import SlurmSettings
from trainscale.launch.launchers.target import list_launcher_groups
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment


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


# Every key that an experiment file could have before settings had groups, all at the top level.
FILE_OF_AN_EARLIER_VERSION = """
models = ["alexnet:8", "resnet18"]
frameworks = ["torch", "jax"]
strategies = ["local", "allreduce", "ps:1"]
batch = 4
max-batch = 64
image_size = 64
classes = 10
precision = "bf16"
layout = "nchw"
compile = true
data = "cifar10"
augment = false
seed = 7
learning_rate = 0.1
momentum = 0.8
weight_decay = 0.001
schedule = "cosine"
warmup_epochs = 1.0
deterministic = true
device = "cpu"
launcher = "slurm"
devices = [1, 2]
gpus_per_host = 2
cores_per_device = 1
ranks_per_gpu = 1
loaders = 2
servers = 2
server_placement = "apart"
placement = "round-robin"
hosts_count = 2
remote_dir = "/scratch"
remote_python = "python3"
setup = ["module load cuda"]
interface = "eth0"
controller_address = "192.0.2.1"
ssh_config = "config"
forward_agent = true
nodes = 2
partition = "gpu"
time = "2:00:00"
account = "project"
gres = "gpu:2"
sbatch = ["--constraint=big"]
queue = "default"
yarn = ["-container_memory 4096"]
ray_address = "192.0.2.1:6379"
scaling = "strong"
warmup = 3
steps = 50
repeats = 4
parity = false
timeout = "10m"
stall_timeout = "1m"
"""


def test_an_experiment_file_of_an_earlier_version_means_the_same(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(FILE_OF_AN_EARLIER_VERSION)
    read = make_experiment({}, path, launcher_groups=list_launcher_groups()).to_dict()
    expected = {key.replace("-", "_"): value for key, value in tomllib.loads(FILE_OF_AN_EARLIER_VERSION).items()}
    expected |= {"timeout": 600.0, "stall_timeout": 60.0}
    for key, value in expected.items():  # what could have one value only may be a list now
        assert read[key] in (tuple(value) if isinstance(value, list) else value, (value,)), key
