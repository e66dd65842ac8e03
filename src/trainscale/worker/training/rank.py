"""One rank of a trial: joins the others, builds the network, trains or serves, and reports."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from .. import plugins
from ..config import select_allocator_variables
from ..data.facts import SYNTHETIC
from ..data.source import open_source
from ..events import (
    Emitter,
    HeartbeatSender,
    Hello,
    MemoryLimit,
    RankError,
    Ready,
    claim_stdout,
    find_explaining_line,
)
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..frameworks.environments import open_cache
from ..inspection.usage import (
    EnergyCounter,
    limit_memory,
    open_counter,
    read_peak_bytes,
    sum_children_peak_bytes,
)
from ..job import WORKER, Job
from ..sample import RankSample, Report, SeenByRank, pack_flags
from ..start import end_with_parent
from ..type_aliases import NamedArrays
from ..witness.witness import Witness
from . import loop
from .rendezvous import Rendezvous

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_PORT_TAKEN = ("address already in use", "eaddrinuse", "errno: 98", "errno 98", "could not start grpc server")
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "unable to allocate",
    "failed to allocate",
    "out_of_memory",  # CUDA_ERROR_…
    "oom when allocating",  # TensorFlow
    "resourceexhaustederror",
    "alloc_failed",  # CUDNN_STATUS_…, CUBLAS_STATUS_…
)
# Errors that mean a lack of memory only if the rank's memory is limited: of threads and their
# stacks, of oneDNN's primitives, of a library's pages.
_NO_MEMORY_IF_LIMITED = (
    "can't start new thread",
    "resource temporarily unavailable",
    "could not create a primitive",
    "could not create a memory",
    "could not execute a primitive",
    "failed to map segment",
)


class CannotCompute(Exception):
    """A job is refused."""


def run_job(work: Callable[[Job, Emitter], None]) -> int:
    """Do the job on standard input. An error becomes an event."""
    end_with_parent()
    job = Job.from_json(sys.stdin.readline())
    emit = Emitter(job.rank, claim_stdout())
    try:
        work(job, emit)
    except BaseException as error:
        if not isinstance(error, CannotCompute):
            traceback.print_exc()
            sys.stderr.flush()
        line = find_explaining_line(str(error).strip()) or type(error).__name__
        message = line if len(line) < 400 else line[:400] + "…"
        emit(RankError(classify(error, job.memory_share > 0), message))
        # A regular exit of some frameworks waits for their peers, forever if those are gone.
        os._exit(1)
    return 0


def main(arguments: list[str]) -> int:
    began = time.perf_counter()

    def run(job: Job, emit: Emitter) -> None:
        with open_cache(job) as job_with_cache:
            ends_at_once = _run(job_with_cache, emit, HeartbeatSender(emit), began)
        if ends_at_once:  # to tear down an interpreter with PyTorch takes a second
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    return run_job(run)


def _run(job: Job, emit: Emitter, heartbeat: HeartbeatSender, began: float) -> bool:
    """Do the job. Return whether the process may end at once."""
    pin(job.device.cores)
    if job.memory_share:
        emit(MemoryLimit(limit_memory(job.memory_share)))
    plugins.use(job.plugins, job.python_path)
    # Before the framework, because frameworks rename the GPUs.
    energy = open_counter(job) if job.role == WORKER else EnergyCounter()
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


def pin(cores: Sequence[int]) -> None:
    """Run on these cores, with one thread per core, unless the list is empty.

    It is called before any framework is imported, because libraries read the variables once.
    """
    # Threads that spin make a step up to ten times slower as soon as anything else runs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not cores:
        return
    os.sched_setaffinity(0, set(cores))
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(len(cores))


def _train(
    adapter: Adapter,
    parameters: int,
    emit: Emitter,
    heartbeat: HeartbeatSender,
    began: float,
    energy: EnergyCounter,
) -> None:
    """Train and measure as a worker. The order matters: each part may disturb the next."""
    job, has_real_data = adapter.job, adapter.job.config.data != SYNTHETIC
    rendezvous = Rendezvous(job.coordinator, job.rendezvous_port, job.rank, job.workers, job.secret)
    source = open_source(job, adapter)
    sample = RankSample(job.rank, socket.gethostname(), 0, 0.0, ())
    sample.startup_seconds = time.perf_counter() - began
    report = Report(sample)
    emit(Ready(parameters, adapter.samples.unit))
    heartbeat.phase = "witness"
    witness = Witness(adapter, rendezvous, report)
    parts = adapter, source, rendezvous, heartbeat, witness, report
    all_steps = loop.learn(*parts, emit) if job.config.trains_epochs else loop.train(*parts, energy)
    sample.samples = job.batch * len(sample.step_seconds)
    sample.energy_source, sample.compilation = energy.source, adapter.compilation()
    sample.device_peak_bytes = adapter.device_peak_bytes()
    sample.host_peak_bytes = read_peak_bytes()
    sample.loaders_peak_bytes = sum_children_peak_bytes() if has_real_data else None

    weights = adapter.weights()  # takes memory, which has been read before
    if job.save_weights:
        import numpy as np

        np.savez(os.path.join(job.save_weights, f"rank{job.rank}.npz"), **weights)
    sample.weights_digest = compute_weights_digest(weights)
    witness.observe_window(weights, all_steps)
    heartbeat.phase = "closing steps"
    witness.take_closing_steps(source, all_steps)
    if has_real_data:
        loop.measure_resident(adapter, source, rendezvous, heartbeat, sample)
        tracker = source.tracker
        flags = "" if tracker.flags is None else pack_flags(tracker.flags)
        epochs = tuple(tracker.epochs.values())
        report.seen = SeenByRank(job.rank, source.facts.train, epochs, flags)
    source.close()
    if job.explain and not job.config.trains_epochs:  # last, because it changes the weights
        window_seconds = sample.window_seconds
        if job.workers > 1 and not job.is_asynchronous:
            sample.exchanges = loop.measure_exchanges(adapter, parameters, rendezvous, heartbeat, window_seconds)
        elif job.workers == 1 and not job.servers:
            sample.further_batches = loop.measure_batches(adapter, heartbeat, window_seconds)
    emit.send_report(report)
    heartbeat.phase, heartbeat.step = "leave", 0
    # No rank leaves while another still needs it.
    rendezvous.exchange("leave")


def compute_weights_digest(weights: NamedArrays) -> str:
    """Return the same text for the same weights, to the last bit."""
    content = hashlib.sha256()
    for name in sorted(weights):
        content.update(name.encode())
        content.update(weights[name].tobytes())
    return content.hexdigest()[:16]


def classify(error: BaseException, limited: bool = False) -> str:
    """Return ``oom``, ``port``, ``refused`` or ``crash``."""
    text = f"{type(error).__name__} {error}".lower()
    messages = _NO_MEMORY + (_NO_MEMORY_IF_LIMITED if limited else ())
    if isinstance(error, CannotCompute):
        return "refused"
    if isinstance(error, MemoryError) or any(message in text for message in messages):
        return "oom"
    return "port" if any(message in text for message in _PORT_TAKEN) else "crash"
