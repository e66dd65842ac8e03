"""What JAX reads from the environment when it is imported: platform, GPU, precision, threads. Does not import JAX."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...compiled_programs import choose_compiler_folder
from ...pinning import find_visible_gpu
from ..network_variables import make_network_variables

if TYPE_CHECKING:
    from ...job import Job

# fp32 means fp32 on a GPU too, where XLA would use TF32 by itself. bf16 operands stay as they are.
_PRECISIONS = {"fp64": "highest", "fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}


def environment(framework: str, job: Job | None) -> dict[str, str]:
    """Return the variables. Without a job, for a probe, JAX may look for GPUs but must not take their memory."""
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),  # XLA's own name for it
        # Otherwise JAX takes three quarters of a GPU: ranks could not share one, and its peak would say nothing.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if job is None:
        return variables
    precision = job.config.precision
    variables["JAX_ENABLE_X64"] = str(precision == "fp64").lower()
    variables["JAX_DEFAULT_MATMUL_PRECISION"] = _PRECISIONS[precision]
    if job.config.deterministic:
        flags = os.environ.get("XLA_FLAGS", "")
        variables["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    if job.device.kind == "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = find_visible_gpu(job.device.index)
    else:
        variables["JAX_PLATFORMS"] = "cpu"
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
        if job.device.cores:
            variables["NPROC"] = str(len(job.device.cores))  # XLA's pools of threads
    return {**variables, **_make_cache_variables(job), **make_network_variables(job)}


def _make_cache_variables(job: Job) -> dict[str, str]:
    """Return the variables of JAX's persistent compilation cache. Small programs are kept too: there are many."""
    folder = choose_compiler_folder(job, "jax", "JAX_COMPILATION_CACHE_DIR")
    if not folder:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
