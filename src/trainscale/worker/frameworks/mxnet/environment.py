"""What MXNet reads from the environment when it is imported: threads, and for parameter servers who this process is and
where the scheduler listens.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...pinning import visible_gpu

if TYPE_CHECKING:
    from ...job import Job

_WITH_SERVERS = ("ps", "ps-async")
# Arrays of more values than this are cut evenly over the servers, smaller ones go to a server by their number. MXNet's
# own 1,000,000 would give one of four servers 3.7 times its share of Inception-BN; with this it is 1.0 times.
_CUT_ABOVE_VALUES = 10_000


def environment(framework: str, job: Job | None) -> dict[str, str]:
    """Variables for a process; MXNet's own parameter servers (ps-lite) are asked for by DMLC_*, and only then."""
    # Any DMLC_ROLE, even an empty one, turns the import of MXNet into a process of a cluster.
    os.environ.pop("DMLC_ROLE", None)
    variables = {"MXNET_SUBGRAPH_VERBOSE": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    if job is None:
        return variables
    if job.device.cores:
        variables.update(_threads(len(job.device.cores)))
    if job.device.kind == "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = visible_gpu(job.device.index)
        # cuDNN would compute 32-bit convolutions in TF32 unasked.
        variables["NVIDIA_TF32_OVERRIDE"] = "0"
        if job.config.deterministic:
            # Else the fastest of cuDNN's algorithms is taken, which may be another next time, or add up in any order.
            variables.update({"MXNET_ENFORCE_DETERMINISM": "1", "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0"})
    if job.config.strategy in _WITH_SERVERS:
        variables.update(_cluster(job))
    return variables


def _threads(count: int) -> dict[str, str]:
    """One operator at a time, on all of the rank's cores; as many threads for what kvstores copy and add."""
    return {
        "OMP_NUM_THREADS": str(count),
        "MXNET_CPU_WORKER_NTHREADS": "1",
        "MXNET_CPU_PRIORITY_NTHREADS": str(count),
        "MXNET_KVSTORE_REDUCTION_NTHREADS": str(count),
    }


def _cluster(job: Job) -> dict[str, str]:
    """The scheduler is the last rank; every other process finds its peers through it."""
    variables = {
        "DMLC_ROLE": job.role,
        "DMLC_PS_ROOT_URI": job.addresses[-1],
        "DMLC_PS_ROOT_PORT": str(job.ports[-1]),
        "DMLC_NUM_WORKER": str(job.workers),
        "DMLC_NUM_SERVER": str(job.servers),
        "MXNET_KVSTORE_BIGARRAY_BOUND": str(_CUT_ABOVE_VALUES),
        "DMLC_NODE_HOST": job.addresses[job.rank],
        "PORT": str(job.ports[job.rank]),  # where ps-lite listens in this process; one that is taken it replaces
    }
    if job.interface:
        variables["DMLC_INTERFACE"] = job.interface
    return variables


def restore_numpy_names() -> None:
    """MXNet 1.9.1 asks at its import for a name that numpy 1.24 dropped."""
    import numpy

    if "bool" not in vars(numpy):
        numpy.bool = bool
