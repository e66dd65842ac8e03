"""One rank of a trial: read the job, join, build, train or serve, report. The order of things, and what goes wrong."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import traceback
from typing import Any

from .. import plugins
from ..data.facts import SYNTHETIC
from ..data.source import open_source
from ..events import (
    Emitter,
    HeartbeatSender,
    Hello,
    Memory,
    MemoryLimit,
    RankError,
    Ready,
    Result,
    claim_stdout,
)
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..inspection import memory
from ..job import WORKER, Job
from ..pinning import die_with_parent, pin
from . import learning, loop
from .rendezvous import Rendezvous

_PORT_TAKEN = ("address already in use", "eaddrinuse", "errno: 98", "errno 98")
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "unable to allocate",
    "failed to allocate",
    "out_of_memory",  # CUDA_ERROR_…
    "oom when allocating",  # TensorFlow
    "alloc_failed",  # CUDNN_STATUS_…, CUBLAS_STATUS_…
)
# What fails for want of memory, without a word of it, where a rank may have only so much: threads and their stacks,
# oneDNN's primitives and their scratch, a library's pages.
_NO_MEMORY_IF_LIMITED = (
    "can't start new thread",
    "resource temporarily unavailable",
    "could not create a primitive",
    "could not create a memory",
    "could not execute a primitive",
    "failed to map segment",
)


def main(arguments: list[str]) -> int:
    began = time.perf_counter()
    die_with_parent()
    job = Job.from_json(sys.stdin.readline())
    emit = Emitter(job.rank, claim_stdout())
    try:
        _run(job, emit, HeartbeatSender(emit), began)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        emit(RankError(classify(error, limited=job.memory_share > 0), _first_words(error)))
        # Some frameworks wait for their peers when they exit in order, for ever when those are gone.
        os._exit(1)
    return 0


def _run(job: Job, emit: Emitter, heartbeat: HeartbeatSender, began: float) -> None:
    pin(job.device.cores)
    if job.memory_share:
        emit(MemoryLimit(memory.limit_memory(job.memory_share)))
    sys.path[:0] = job.python_path
    plugins.use(job.plugins)
    adapter = FRAMEWORKS[job.config.framework].load(job)(job)
    emit(Hello(socket.gethostname(), os.getpid(), job.role, adapter.versions()))
    heartbeat.phase = "join"
    adapter.join()
    heartbeat.phase = "build"
    parameters = adapter.build()
    if job.role != WORKER:
        heartbeat.phase = "serve"
        emit(Ready(parameters))
        emit(adapter.serve())
        adapter.leave()
        return
    rendezvous = Rendezvous(job.coordinator, job.rendezvous_port, job.rank, job.workers)
    source = open_source(job, adapter)
    startup_seconds = time.perf_counter() - began
    emit(Ready(parameters, adapter.samples.unit))
    if job.config.trains_epochs:
        window = learning.learn(adapter, source, rendezvous, heartbeat, emit)
    else:
        window = loop.train(adapter, source, job.measure, rendezvous, heartbeat, not job.is_asynchronous)
    weights_digest = _report(job, adapter, emit)
    if job.config.data != SYNTHETIC:
        emit(loop.measure_resident(adapter, source, rendezvous, heartbeat, len(window.step_seconds)))
    source.close()
    emit.steps(window.step_seconds)
    emit(
        Result(
            samples=job.batch * len(window.step_seconds),
            steps=len(window.step_seconds),
            warmup=window.warmup,
            window_seconds=window.window_seconds,
            startup_seconds=startup_seconds,
            first_step_seconds=window.first_step_seconds,
            first_loss=window.first_loss,
            last_loss=window.last_loss,
            cpu_seconds=window.cpu_seconds,
            involuntary_switches=window.involuntary_switches,
            waited_seconds=window.waited_seconds,
            weights_digest=weights_digest,
        )
    )
    # All ranks leave together. A collective or a parameter server would take a rank that is gone for a failure.
    rendezvous.exchange("leave")
    adapter.leave()


def _report(job: Job, adapter: Adapter, emit: Emitter) -> str:
    """Says what memory the training took; gives back the digest of the weights it came to."""
    # Before the weights are gathered for their digest: that takes memory which training does not.
    emit(
        Memory(
            device_peak_bytes=adapter.device_peak_bytes(),
            host_peak_bytes=loop.host_peak_bytes(),
            loaders_peak_bytes=None if job.config.data == SYNTHETIC else memory.children_peak_bytes(),
        )
    )
    weights = adapter.weights()
    if job.save_weights:
        import numpy as np

        np.savez(os.path.join(job.save_weights, f"rank{job.rank}.npz"), **weights)  # noqa: PTH118
    return digest(weights)


def digest(weights: dict[str, Any]) -> str:
    """Equal for equal weights to the last bit. Batch-norm statistics are not among them: they are each rank's own."""
    whole = hashlib.sha256()
    for name in sorted(weights):
        whole.update(name.encode())
        whole.update(weights[name].tobytes())
    return whole.hexdigest()[:16]


def classify(error: BaseException, limited: bool = False) -> str:
    """``oom``, ``port`` or ``crash``: the first two have their own remedies."""
    text = f"{type(error).__name__} {error}".lower()
    no_memory = _NO_MEMORY + (_NO_MEMORY_IF_LIMITED if limited else ())
    if isinstance(error, MemoryError) or any(words in text for words in no_memory):
        return "oom"
    return "port" if any(words in text for words in _PORT_TAKEN) else "crash"


def _first_words(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    lines = text.splitlines()
    first = lines[-1] if lines[0].startswith("Traceback ") else lines[0]  # MXNet's messages hold one
    return first if len(first) < 400 else first[:400] + "…"
