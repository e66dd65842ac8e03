"""What MXNet reads from the environment when it is imported: threads and, with parameter servers, the role of this
process and the scheduler's address.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...pinning import find_visible_gpu

if TYPE_CHECKING:
    from ...job import Job

_WITH_SERVERS = ("ps", "ps-async")
# Larger arrays are cut evenly over the servers; smaller ones go to a server by their number. MXNet's own 1,000,000
# values would give one of four servers 3.7 times its share of Inception-BN; with this it is 1.0 times.
_CUT_ABOVE_VALUES = 10_000


def environment(framework: str, job: Job | None) -> dict[str, str]:
    """Return the variables of a process. DMLC_* are set only with parameter servers (ps-lite)."""
    # Any DMLC_ROLE, even an empty one, makes the import of MXNet join a cluster.
    os.environ.pop("DMLC_ROLE", None)
    variables = {"MXNET_SUBGRAPH_VERBOSE": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    if job is None:
        return variables
    if job.device.cores:
        variables.update(_make_thread_variables(len(job.device.cores)))
    if job.device.kind == "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = find_visible_gpu(job.device.index)
        # Otherwise cuDNN would compute 32-bit convolutions in TF32.
        variables["NVIDIA_TF32_OVERRIDE"] = "0"
        if job.config.deterministic:
            # Otherwise cuDNN takes its fastest algorithms, which may differ from run to run or add in any order.
            variables.update({"MXNET_ENFORCE_DETERMINISM": "1", "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0"})
    if job.config.strategy in _WITH_SERVERS:
        variables.update(_make_cluster_variables(job))
    return variables


def _make_thread_variables(count: int) -> dict[str, str]:
    """Run one operator at a time on all of the rank's cores, and let kvstores use as many threads."""
    return {
        "OMP_NUM_THREADS": str(count),
        "MXNET_CPU_WORKER_NTHREADS": "1",
        "MXNET_CPU_PRIORITY_NTHREADS": str(count),
        "MXNET_KVSTORE_REDUCTION_NTHREADS": str(count),
    }


def _make_cluster_variables(job: Job) -> dict[str, str]:
    """Name the scheduler, which is the last rank. Every other process finds its peers through it."""
    variables = {
        "DMLC_ROLE": job.role,
        "DMLC_PS_ROOT_URI": job.addresses[-1],
        "DMLC_PS_ROOT_PORT": str(job.ports[-1]),
        "DMLC_NUM_WORKER": str(job.workers),
        "DMLC_NUM_SERVER": str(job.servers),
        "MXNET_KVSTORE_BIGARRAY_BOUND": str(_CUT_ABOVE_VALUES),
        "DMLC_NODE_HOST": job.addresses[job.rank],
        "PORT": str(job.ports[job.rank]),  # where ps-lite listens; it takes another if this one is in use
    }
    if job.interface:
        variables["DMLC_INTERFACE"] = job.interface
    return variables


def restore_numpy_names() -> None:
    """Restore a name that numpy 1.24 removed and that MXNet 1.9.1 needs at its import."""
    import numpy

    if "bool" not in vars(numpy):
        numpy.bool = bool
