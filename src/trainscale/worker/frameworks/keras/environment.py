"""What Keras and its backend read from the environment when they are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jax.environment import environment as jax_environment
from ..tensorflow.environment import environment as tensorflow_environment

if TYPE_CHECKING:
    from ...job import Job


def environment(framework: str, job: Job | None) -> dict[str, str]:
    backend = framework.partition("-")[2]
    # Keras may import TensorFlow where it is installed, whatever the backend. It must be quiet and take no GPU memory.
    others = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {"KERAS_BACKEND": backend, **others, **_BACKENDS[backend](framework, job)}


def _make_torch_variables(framework: str, job: Job | None) -> dict[str, str]:
    """Hide the GPUs from ranks on CPU cores. Otherwise Keras uses a GPU wherever PyTorch sees one."""
    return {"CUDA_VISIBLE_DEVICES": "-1"} if job is not None and job.device.kind == "cpu" else {}


_BACKENDS = {"jax": jax_environment, "tensorflow": tensorflow_environment, "torch": _make_torch_variables}
