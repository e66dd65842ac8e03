"""No framework takes a GPU's memory in advance: what is counted is what training needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainscale.worker.frameworks.jax.environment import environment as jax_environment
from trainscale.worker.frameworks.keras.environment import environment as keras_environment
from trainscale.worker.frameworks.tensorflow.environment import environment as tensorflow_environment
from trainscale.worker.job import WORKER, Device, Job

CONFIG = {"strategy": "local", "precision": "fp32"}
JOB = Job(WORKER, 0, 1, 0, ("127.0.0.1",), (1,), 2, Device("cuda", 0), CONFIG, 8)
TENSORFLOW, JAX = ("TF_FORCE_GPU_ALLOW_GROWTH", "true"), ("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.mark.parametrize(
    "job", [JOB, replace(JOB, config={**CONFIG, "strategy": "ps"}), None], ids=["local", "ps", "probe"]
)
@pytest.mark.parametrize(
    ("framework", "environment", "setting"),
    [
        ("tensorflow", tensorflow_environment, TENSORFLOW),
        ("jax", jax_environment, JAX),
        ("keras-tensorflow", keras_environment, TENSORFLOW),
        ("keras-jax", keras_environment, JAX),
        ("keras-jax", keras_environment, TENSORFLOW),
        ("keras-torch", keras_environment, TENSORFLOW),
    ],
)
def test_memory_is_taken_as_it_is_needed(
    framework: str, environment: object, setting: tuple[str, str], job: Job | None
) -> None:
    assert callable(environment)
    name, value = setting
    assert environment(framework, job)[name] == value
