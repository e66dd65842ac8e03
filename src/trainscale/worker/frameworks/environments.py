"""What each framework reads from the environment: devices, threads, log levels, caches and roles.

Frameworks read most of these variables once, when they are imported, so nothing here imports one.
Without a job, for a probe, a framework may look for GPUs but must not take their memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..inspection.gpus import find_visible_gpu
from ..job import WORKER, Job
from .catalog import WITH_SERVERS

XLA_CACHE_FLAG = "--tf_xla_persistent_cache_directory="

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # that gRPC obeys
# fp32 means fp32 on a GPU too, where XLA would use TF32 by itself. bf16 operands stay as they are.
_JAX_PRECISIONS = {"fp64": "highest", "fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}
# MXNet's servers: larger arrays are cut evenly over them, smaller ones go to a server by number.
# MXNet's own 1,000,000 would give one of four servers 3.7 times its share of Inception-BN.
_CUT_ABOVE_VALUES = 10_000
_ALWAYS_COMPILE = ("jax", "keras-jax")


@contextmanager
def open_cache(job: Job) -> Iterator[Job]:
    """Yield the job with the folder in which a rank that compiles keeps programs for the next trial.

    It is in the user's cache folder on the rank's host. With ``--no-cache`` every rank has an empty one of its own,
    which is removed when the rank ends.
    """
    if job.role != WORKER or not (job.config.compile or job.config.framework in _ALWAYS_COMPILE):
        yield job
    elif job.keeps_compiled:
        # As for the controller (folders.py), a relative path counts as unset.
        home = os.environ.get("XDG_CACHE_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.cache")
        folder = f"{home}/trainscale/compiled"
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            pass
        # If it cannot be written to, frameworks compile, and keep nothing.
        yield replace(job, compiled_folder=folder if os.access(folder, os.W_OK | os.X_OK) else "")
    else:
        folder = tempfile.mkdtemp(prefix="trainscale-compiled-")
        try:
            yield replace(job, compiled_folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def choose_compiler_folder(job: Job, name: str, variable: str = "") -> str:
    """Return the folder of a compiler; empty if the user's own ``variable`` names one."""
    if not job.compiled_folder or (variable and job.keeps_compiled and os.environ.get(variable)):
        return ""
    return f"{job.compiled_folder}/{name}"


def make_torch_variables(framework: str, job: Job | None) -> dict[str, str]:
    """Name the folder in which torch.compile keeps graphs, C++ and Triton kernels."""
    folder = choose_compiler_folder(job, "torch", "TORCHINDUCTOR_CACHE_DIR") if job is not None else ""
    # Triton's folder is a part of this one, unless the user has named another.
    others = {} if job is None or job.keeps_compiled else {"TRITON_CACHE_DIR": f"{folder}/triton"}
    return {"TORCHINDUCTOR_CACHE_DIR": folder, **others} if folder else {}


def make_jax_variables(framework: str, job: Job | None) -> dict[str, str]:
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),  # XLA's own name for it
        # Otherwise JAX takes three quarters of a GPU.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if job is None:
        return variables
    precision = job.config.precision
    variables["JAX_ENABLE_X64"] = str(precision == "fp64").lower()
    variables["JAX_DEFAULT_MATMUL_PRECISION"] = _JAX_PRECISIONS[precision]
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
    folder = choose_compiler_folder(job, "jax", "JAX_COMPILATION_CACHE_DIR")
    if folder:
        # Small programs are kept too: there are many.
        variables["JAX_COMPILATION_CACHE_DIR"] = folder
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        variables["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return {**variables, **make_network_variables(job)}


def make_tensorflow_variables(framework: str, job: Job | None) -> dict[str, str]:
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # errors only
        # Otherwise TensorFlow takes nearly all memory of every GPU that it sees.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    if job is None:
        return variables
    if job.device.cores:
        variables["TF_NUM_INTRAOP_THREADS"] = str(len(job.device.cores))
        variables["TF_NUM_INTEROP_THREADS"] = str(choose_inter_op_threads(job))
    on_gpu = job.device.kind == "cuda" and job.role == "worker"
    variables["CUDA_VISIBLE_DEVICES"] = find_visible_gpu(job.device.index) if on_gpu else "-1"
    # XLA's cache holds what --compile compiles. It renames complete files, so ranks may share a folder.
    folder, flags = choose_compiler_folder(job, "tensorflow"), os.environ.get("TF_XLA_FLAGS", "")
    is_users_own = job.keeps_compiled and XLA_CACHE_FLAG in flags
    if folder and not is_users_own:
        variables["TF_XLA_FLAGS"] = f"{flags} {XLA_CACHE_FLAG}{folder}".strip()
    return {**variables, **make_network_variables(job)}


def choose_inter_op_threads(job: Job) -> int:
    """Return how many of TensorFlow's operations run at a time, each on all cores."""
    # A second thread keeps tensors moving while one computes.
    return 1 if job.config.strategy in ("local", "independent") else 2


def make_keras_variables(framework: str, job: Job | None) -> dict[str, str]:
    backend = framework.partition("-")[2]
    # Keras may import TensorFlow whatever the backend.
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if backend == "jax":
        variables.update(make_jax_variables(framework, job))
    elif backend == "tensorflow":
        variables.update(make_tensorflow_variables(framework, job))
    elif job is not None and job.device.kind == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = "-1"  # otherwise Keras uses a GPU wherever PyTorch sees one
    return variables


def make_mxnet_variables(framework: str, job: Job | None) -> dict[str, str]:
    # Any DMLC_ROLE, even an empty one, makes the import of MXNet join a cluster.
    os.environ.pop("DMLC_ROLE", None)
    variables = {"MXNET_SUBGRAPH_VERBOSE": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"}
    if job is None:
        return variables
    if job.device.cores:
        # One operator at a time runs on all of the rank's cores, and kvstores use as many threads.
        count = str(len(job.device.cores))
        variables.update(OMP_NUM_THREADS=count, MXNET_CPU_WORKER_NTHREADS="1")
        variables.update(MXNET_CPU_PRIORITY_NTHREADS=count, MXNET_KVSTORE_REDUCTION_NTHREADS=count)
    if job.device.kind == "cuda":
        variables["CUDA_VISIBLE_DEVICES"] = find_visible_gpu(job.device.index)
        # Otherwise cuDNN would compute 32-bit convolutions in TF32.
        variables["NVIDIA_TF32_OVERRIDE"] = "0"
        if job.config.deterministic:
            variables.update({"MXNET_ENFORCE_DETERMINISM": "1", "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0"})
    if job.config.strategy in WITH_SERVERS:
        # ps-lite: every process finds its peers through the scheduler, which is the last rank.
        variables.update(
            DMLC_ROLE=job.role,
            DMLC_PS_ROOT_URI=job.addresses[-1],
            DMLC_PS_ROOT_PORT=str(job.ports[-1]),
            DMLC_NUM_WORKER=str(job.workers),
            DMLC_NUM_SERVER=str(job.servers),
            MXNET_KVSTORE_BIGARRAY_BOUND=str(_CUT_ABOVE_VALUES),
            DMLC_NODE_HOST=job.addresses[job.rank],
            PORT=str(job.ports[job.rank]),  # where ps-lite listens; it takes another if it is in use
        )
        if job.interface:
            variables["DMLC_INTERFACE"] = job.interface
    return variables


def make_network_variables(job: Job) -> dict[str, str]:
    """Return variables for gloo, NCCL and gRPC, which read them when a process joins the others."""
    variables = {}
    if any(os.environ.get(name) for name in _PROXIES):
        # Through a proxy gRPC would never reach a peer, and wait forever.
        variables["no_grpc_proxy"] = ",".join(dict.fromkeys(job.addresses))
    if job.interface:
        variables["GLOO_SOCKET_IFNAME"] = job.interface
        variables["NCCL_SOCKET_IFNAME"] = f"={job.interface}"  # not all with this prefix
    return variables
