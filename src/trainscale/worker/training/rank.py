"""One rank of a trial: reads its job, joins the others, builds the network, trains or serves, and reports."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import time
import traceback
from dataclasses import replace
from typing import Any

from .. import plugins
from ..allocator import select_allocator_variables
from ..compiled_programs import open_cache
from ..data.facts import SYNTHETIC
from ..data.source import open_source
from ..emitter import Emitter, HeartbeatSender, claim_stdout
from ..events.ranks import EpochSamples, Hello, Memory, MemoryLimit, RankError, Ready, Result, SampleFlags
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..inspection import memory
from ..inspection.energy import EnergyCounter, open_counter
from ..job import WORKER, Job
from ..pinning import die_with_parent, pin
from ..type_aliases import NamedArrays
from . import explanation, learning, loop
from .rendezvous import Rendezvous
from .witness import Witness

_FLAGS_PER_LINE = 3600  # characters
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
# Errors that mean a lack of memory only if the rank's memory is limited: of threads and their stacks, of oneDNN's
# primitives and their scratch space, of a library's pages.
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
        with open_cache(job) as job_with_cache:
            ends_at_once = _run(job_with_cache, emit, HeartbeatSender(emit), began)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        emit(RankError(classify(error, limited=job.memory_share > 0), _summarise(error)))
        # A regular exit of some frameworks waits for their peers, forever if those are gone.
        os._exit(1)
    if ends_at_once:
        _end_at_once()
    return 0


def _end_at_once() -> None:
    """End the process after its exit handlers. To tear down an interpreter that has PyTorch takes a second, in which
    nothing happens for the trial.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run(job: Job, emit: Emitter, heartbeat: HeartbeatSender, began: float) -> bool:
    """Do the job. Return whether the process may end at once."""
    pin(job.device.cores)
    if job.memory_share:
        emit(MemoryLimit(memory.limit_memory(job.memory_share)))
    sys.path[:0] = job.python_path
    plugins.use(job.plugins)
    energy = open_counter(job) if job.role == WORKER else EnergyCounter()  # frameworks rename the GPUs
    adapter = FRAMEWORKS[job.config.framework].load(job)(job)
    variables = select_allocator_variables(os.environ)
    emit(Hello(socket.gethostname(), os.getpid(), job.role, adapter.versions(), variables))
    heartbeat.phase = "join"
    adapter.join()
    heartbeat.phase = "build"
    parameters = adapter.build()
    if job.role == WORKER:
        _train(adapter, parameters, emit, heartbeat, began, energy)
    else:
        heartbeat.phase = "serve"
        emit(Ready(parameters))
        emit(adapter.serve())
    heartbeat.phase, heartbeat.step = "leave", 0
    adapter.leave()
    return adapter.ends_at_once


def _train(
    adapter: Adapter,
    parameters: int,
    emit: Emitter,
    heartbeat: HeartbeatSender,
    began: float,
    energy: EnergyCounter,
) -> None:
    job = adapter.job
    rendezvous = Rendezvous(job.coordinator, job.rendezvous_port, job.rank, job.workers, job.secret)
    source = open_source(job, adapter)
    startup_seconds = time.perf_counter() - began
    emit(Ready(parameters, adapter.samples.unit))
    heartbeat.phase = "witness"
    witness = Witness(adapter, rendezvous, emit)
    if job.config.trains_epochs:
        window = learning.learn(adapter, source, rendezvous, heartbeat, emit, witness)
    else:
        window = loop.train(adapter, source, rendezvous, heartbeat, witness, energy)
    compilation = adapter.compilation()  # now, because what follows may compile more
    weights = _report(job, adapter, emit)
    witness.report_window(weights, window.all_steps, window.unfinished_seconds)
    heartbeat.phase = "closing steps"
    witness.take_closing_steps(source, window.all_steps, window.last_loss)
    if job.config.data != SYNTHETIC:
        emit(loop.measure_resident(adapter, source, rendezvous, heartbeat, len(window.step_seconds)))
    _report_samples(source, emit)
    source.close()
    if job.explain and not job.config.trains_epochs:
        _measure_explanation(adapter, parameters, rendezvous, heartbeat, emit, window.window_seconds)
    emit.send_steps(window.step_seconds)
    result = _make_result(job, window, startup_seconds, compute_weights_digest(weights), energy.source)
    emit(replace(result, witness_seconds=witness.seconds, compilation=compilation))
    heartbeat.phase, heartbeat.step = "leave", 0
    # No rank leaves while another still needs it: a collective or a parameter server would take that for a failure.
    rendezvous.exchange("leave")


def _make_result(
    job: Job, window: loop.Window, startup_seconds: float, weights_digest: str, energy_source: str
) -> Result:
    return Result(
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
        core_wait_seconds=window.core_wait_seconds,
        weights_digest=weights_digest,
        energy_joules=window.energy_joules,
        window_began=window.began,
        energy_source=energy_source,
    )


def _measure_explanation(
    adapter: Adapter,
    parameters: int,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    emit: Emitter,
    window_seconds: float,
) -> None:
    """Measure what an explanation needs. It comes last, because it changes the weights."""
    job = adapter.job
    if job.workers > 1 and not job.is_asynchronous:
        exchanges = explanation.measure_exchanges(adapter, parameters, rendezvous, heartbeat, window_seconds)
        if exchanges is not None:
            emit(exchanges)
    elif job.workers == 1 and not job.servers:
        batches = explanation.measure_batches(adapter, heartbeat, window_seconds)
        if batches is not None:
            emit(batches)


def _report_samples(source: Any, emit: Emitter) -> None:
    """Report which samples of the data set the rank has trained on."""
    for seen in source.list_seen():
        emit(EpochSamples(source.facts.train, seen.epoch, seen.count, seen.hash_sum, seen.complete))
    flags = source.pack_first_epoch_flags() or ""
    for start in range(0, len(flags), _FLAGS_PER_LINE):
        emit(SampleFlags(flags[start : start + _FLAGS_PER_LINE]))


def _report(job: Job, adapter: Adapter, emit: Emitter) -> NamedArrays:
    """Report the memory that training took, and return the trained weights."""
    # This comes before the weights are gathered for their digest, which takes more memory.
    emit(
        Memory(
            device_peak_bytes=adapter.device_peak_bytes(),
            host_peak_bytes=loop.read_host_peak_bytes(),
            loaders_peak_bytes=None if job.config.data == SYNTHETIC else memory.sum_children_peak_bytes(),
        )
    )
    weights = adapter.proof.weights()
    if job.save_weights:
        import numpy as np

        np.savez(os.path.join(job.save_weights, f"rank{job.rank}.npz"), **weights)  # noqa: PTH118
    return weights


def compute_weights_digest(weights: NamedArrays) -> str:
    """Return the same text for the same weights, to the last bit. Batch-norm statistics are not weights: they differ
    between ranks.
    """
    content = hashlib.sha256()
    for name in sorted(weights):
        content.update(name.encode())
        content.update(weights[name].tobytes())
    return content.hexdigest()[:16]


def classify(error: BaseException, limited: bool = False) -> str:
    """Return ``oom``, ``port`` or ``crash``; the first two have their own remedies."""
    text = f"{type(error).__name__} {error}".lower()
    messages = _NO_MEMORY + (_NO_MEMORY_IF_LIMITED if limited else ())
    if isinstance(error, MemoryError) or any(message in text for message in messages):
        return "oom"
    return "port" if any(message in text for message in _PORT_TAKEN) else "crash"


def _summarise(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    lines = text.splitlines()
    first = lines[-1] if lines[0].startswith("Traceback ") else lines[0]  # MXNet's messages hold one
    return first if len(first) < 400 else first[:400] + "…"
