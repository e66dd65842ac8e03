"""What Keras and its backend read from the environment when they are imported: that of the backend, and which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jax.environment import environment as jax_environment
from ..tensorflow.environment import environment as tensorflow_environment

if TYPE_CHECKING:
    from ...job import Job


def environment(framework: str, job: Job | None) -> dict[str, str]:
    backend = framework.partition("-")[2]
    # Keras may import TensorFlow where it is installed, whatever the backend: that shall be quiet, and take no GPU's
    # memory.
    others = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {"KERAS_BACKEND": backend, **others, **_BACKENDS[backend](framework, job)}


def _torch(framework: str, job: Job | None) -> dict[str, str]:
    """Keras takes a GPU wherever PyTorch sees one."""
    variables = {}
    if job is not None and job.device.kind == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return variables


_BACKENDS = {"jax": jax_environment, "tensorflow": tensorflow_environment, "torch": _torch}
