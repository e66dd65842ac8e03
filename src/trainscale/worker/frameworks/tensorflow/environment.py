"""What TensorFlow reads from the environment when it is imported: threads, its one GPU, how much it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...pinning import visible_gpu
from ..network_variables import network_variables

if TYPE_CHECKING:
    from ...job import Job

_ALONE = ("local", "independent")


def environment(framework: str, job: Job | None) -> dict[str, str]:
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # errors only
        # TensorFlow takes nearly all memory of every GPU that it sees: no other rank could share it, and no count of
        # memory would say what training needs.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    if job is None:
        return variables
    if job.device.cores:
        variables["TF_NUM_INTRAOP_THREADS"] = str(len(job.device.cores))
        variables["TF_NUM_INTEROP_THREADS"] = str(inter_op_threads(job))
    variables["CUDA_VISIBLE_DEVICES"] = _visible_gpu(job)
    return {**variables, **network_variables(job)}


def inter_op_threads(job: Job) -> int:
    """Operations at a time. Each already uses all cores; a second thread keeps tensors moving while one computes."""
    return 1 if job.config.strategy in _ALONE else 2


def _visible_gpu(job: Job) -> str:
    """This rank's one, by the name that the job's scheduler may have given it; none for ranks that compute on cores."""
    if job.device.kind != "cuda" or job.role != "worker":
        return "-1"
    return visible_gpu(job.device.index)
