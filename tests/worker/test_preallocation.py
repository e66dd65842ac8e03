"""No framework takes a GPU's memory in advance: what is counted is what training needed."""

from __future__ import annotations

import pytest
from jobs import make_job

from trainscale.worker.frameworks.jax.environment import environment as jax_environment
from trainscale.worker.frameworks.keras.environment import environment as keras_environment
from trainscale.worker.frameworks.tensorflow.environment import environment as tensorflow_environment
from trainscale.worker.job import Device, Job

GPU = Device("cuda", 0)
TENSORFLOW, JAX = ("TF_FORCE_GPU_ALLOW_GROWTH", "true"), ("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.mark.parametrize("job", [make_job(device=GPU), make_job("ps", device=GPU), None], ids=["local", "ps", "probe"])
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
