"""One rank of a trial: reads its job, joins the others, builds the network, trains or serves, and reports."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import time
import traceback

from .. import plugins
from ..allocator import select_allocator_variables
from ..compiled_programs import open_cache
from ..data import open_source
from ..data.facts import SYNTHETIC
from ..emitter import Emitter, HeartbeatSender, claim_stdout
from ..events import Hello, MemoryLimit, RankError, Ready
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..inspection.usage import EnergyCounter, limit_memory, open_counter, sum_children_peak_bytes
from ..job import WORKER, Job
from ..pinning import die_with_parent, pin
from ..sample import RankSample, Report, SeenByRank
from ..type_aliases import NamedArrays
from ..witness.witness import Witness
from . import explanation, learning, loop
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
        emit(MemoryLimit(limit_memory(job.memory_share)))
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
    """Train and measure as a worker, and send the report. The order of the parts matters: each may disturb the next."""
    job, has_real_data = adapter.job, adapter.job.config.data != SYNTHETIC
    rendezvous = Rendezvous(job.coordinator, job.rendezvous_port, job.rank, job.workers, job.secret)
    source = open_source(job, adapter)
    sample = RankSample(job.rank, socket.gethostname(), 0, 0.0, (), startup_seconds=time.perf_counter() - began)
    report = Report(sample)
    emit(Ready(parameters, adapter.samples.unit))
    heartbeat.phase = "witness"
    witness = Witness(adapter, rendezvous, report)
    if job.config.trains_epochs:
        all_steps = learning.learn(adapter, source, rendezvous, heartbeat, witness, report, emit)
    else:
        all_steps = loop.train(adapter, source, rendezvous, heartbeat, witness, report, energy)
    sample.samples = job.batch * len(sample.step_seconds)
    sample.energy_source, sample.compilation = energy.source, adapter.compilation()
    sample.device_peak_bytes, sample.host_peak_bytes = adapter.device_peak_bytes(), loop.read_host_peak_bytes()
    sample.loaders_peak_bytes = sum_children_peak_bytes() if has_real_data else None

    weights = adapter.proof.weights()  # takes memory, which has been read before
    if job.save_weights:
        import numpy as np

        np.savez(os.path.join(job.save_weights, f"rank{job.rank}.npz"), **weights)  # noqa: PTH118
    sample.weights_digest = compute_weights_digest(weights)
    witness.observe_window(weights, all_steps)
    heartbeat.phase = "closing steps"
    witness.take_closing_steps(source, all_steps)
    if has_real_data:
        loop.measure_resident(adapter, source, rendezvous, heartbeat, sample)
        tracker = source.tracker
        report.seen = SeenByRank(
            job.rank, source.facts.train, tuple(tracker.list_seen()), tracker.pack_first_epoch_flags() or ""
        )
    source.close()
    if job.explain and not job.config.trains_epochs:  # last, because it changes the weights
        if job.workers > 1 and not job.is_asynchronous:
            sample.exchanges = explanation.measure_exchanges(
                adapter, parameters, rendezvous, heartbeat, sample.window_seconds
            )
        elif job.workers == 1 and not job.servers:
            sample.further_batches = explanation.measure_batches(adapter, heartbeat, sample.window_seconds)
    emit.send_report(report)
    heartbeat.phase, heartbeat.step = "leave", 0
    # No rank leaves while another still needs it: a collective or a parameter server would take that for a failure.
    rendezvous.exchange("leave")


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
