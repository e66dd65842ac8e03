"""What TensorFlow reads from the environment when it is imported: threads, its GPU, and its log level."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...compiled_programs import choose_compiler_folder
from ...pinning import find_visible_gpu
from ..network_variables import make_network_variables

if TYPE_CHECKING:
    from ...job import Job

_ALONE = ("local", "independent")
CACHE_FLAG = "--tf_xla_persistent_cache_directory="


def environment(framework: str, job: Job | None) -> dict[str, str]:
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # errors only
        # Otherwise TensorFlow takes nearly all memory of every GPU that it sees. No other rank could share a GPU, and
        # the memory that training needs could not be measured.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    if job is None:
        return variables
    if job.device.cores:
        variables["TF_NUM_INTRAOP_THREADS"] = str(len(job.device.cores))
        variables["TF_NUM_INTEROP_THREADS"] = str(choose_inter_op_threads(job))
    on_gpu = job.device.kind == "cuda" and job.role == "worker"
    variables["CUDA_VISIBLE_DEVICES"] = find_visible_gpu(job.device.index) if on_gpu else "-1"
    return {**variables, **_make_cache_variables(job), **make_network_variables(job)}


def choose_inter_op_threads(job: Job) -> int:
    """Return how many operations run at a time.

    Each operation already uses all cores. A second thread keeps tensors moving while one computes.
    """
    return 1 if job.config.strategy in _ALONE else 2


def _make_cache_variables(job: Job) -> dict[str, str]:
    """Return the variable of XLA's persistent cache. It holds what --compile compiles; tf.function alone keeps nothing.

    XLA writes a temporary file first and renames it, so several ranks may use one folder.
    """
    folder, flags = choose_compiler_folder(job, "tensorflow"), os.environ.get("TF_XLA_FLAGS", "")
    if not folder or (job.keeps_compiled and CACHE_FLAG in flags):  # the user's own folder
        return {}
    return {"TF_XLA_FLAGS": f"{flags} {CACHE_FLAG}{folder}".strip()}
