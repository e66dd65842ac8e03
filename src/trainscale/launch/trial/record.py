"""Makes the record of a trial from what the controller has seen of it. Pure functions."""

from __future__ import annotations

import base64
import math
import sys
from array import array

from ...record.trial import IMAGES, OK, BatchTime, ExchangeTime, GpuState, RankSample, ServerSample, TrialRecord
from ...record.witness import RankWitness, SeenByRank
from ...worker.data.seen import SamplesSeen
from ...worker.events import Result, ServerResult
from .failures import find_failure
from .rank_state import RankState
from .state import TrialState


def build_record(state: TrialState, started: str, seconds: float) -> TrialRecord:
    failure = None if state.is_measured else find_failure(state)
    first = state.workers[0]
    result = first.result if isinstance(first.result, Result) else None
    return TrialRecord(
        trial=state.trial,
        status=OK if failure is None else failure.kind,
        started=started,
        seconds=round(seconds, 3),
        hosts=state.hosts,
        warmup=result.warmup if result else 0,
        steps=result.steps if result else 0,
        ranks=tuple(_make_sample(rank, rank.result) for rank in state.workers if isinstance(rank.result, Result)),
        epochs=tuple(state.epochs),
        servers=tuple(
            ServerSample(**vars(rank.result)) for rank in state.servers if isinstance(rank.result, ServerResult)
        ),
        failure=failure,
        versions=first.hello.versions if first.hello else {},
        allocator=first.hello.allocator if first.hello else {},
        parameters=first.ready.parameters if first.ready else None,
        unit=first.ready.unit if first.ready else IMAGES,
        samples_seen=tuple(_make_samples_seen(rank) for rank in state.workers if rank.epoch_samples),
        sketches=_decode_sketches(state.workers[-1].sketches),
        closing_sketches=_decode_sketches(state.workers[-1].closing_sketches),
        machine=state.machine,
        notes=(*(note for rank in state.ranks for note in (*rank.notes, *_note_missing_steps(rank))), *state.notes),
    )


def _note_missing_steps(rank: RankState) -> list[str]:
    if not isinstance(rank.result, Result) or len(rank.step_seconds) == rank.result.steps:
        return []
    return [f"{rank.name}: {rank.result.steps} steps taken, times of {len(rank.step_seconds)} arrived"]


def _make_sample(rank: RankState, result: Result) -> RankSample:
    nvml_peak_bytes, nvml_note = _find_driver_peak(rank)
    return RankSample(
        rank=rank.rank,
        host=rank.hello.host if rank.hello else "",
        samples=result.samples,
        window_seconds=result.window_seconds,
        step_seconds=tuple(rank.step_seconds),
        startup_seconds=result.startup_seconds,
        first_step_seconds=result.first_step_seconds,
        first_loss=_keep_finite(result.first_loss),
        last_loss=_keep_finite(result.last_loss),
        weights_digest=result.weights_digest,
        device_peak_bytes=rank.memory.device_peak_bytes,
        nvml_peak_bytes=nvml_peak_bytes,
        nvml_note=nvml_note,
        host_peak_bytes=rank.memory.host_peak_bytes,
        loaders_peak_bytes=rank.memory.loaders_peak_bytes,
        cpu_seconds=result.cpu_seconds,
        involuntary_switches=result.involuntary_switches,
        waited_seconds=result.waited_seconds,
        core_wait_seconds=result.core_wait_seconds,
        resident_steps=rank.resident.steps if rank.resident else 0,
        resident_seconds=rank.resident.seconds if rank.resident else 0.0,
        energy_joules=result.energy_joules,
        energy_source=result.energy_source,
        compilation=result.compilation,
        gpu=GpuState(**vars(rank.gpu_window)) if rank.gpu_window else None,
        exchanges=_list_exchanges(rank),
        further_batches=_list_further_batches(rank),
        witness=_make_witness(rank, result),
    )


def _list_exchanges(rank: RankState) -> tuple[ExchangeTime, ...]:
    event = rank.exchanges
    if event is None:
        return ()
    return tuple(map(ExchangeTime, event.bytes, event.counts, event.seconds))


def _list_further_batches(rank: RankState) -> tuple[BatchTime, ...]:
    event = rank.further_batches
    if event is None:
        return ()
    return tuple(map(BatchTime, event.batches, event.steps, event.seconds))


def _make_witness(rank: RankState, result: Result) -> RankWitness | None:
    """Return what the rank reported about its first steps and its window."""
    proof, first_steps, closing = rank.window_proof, rank.first_steps, rank.closing_steps
    if proof is None:
        return None
    return RankWitness(
        losses=tuple(_keep_finite(loss) for loss in first_steps.losses) if first_steps else (),
        total=_decode_numbers(first_steps.total) if first_steps else (),
        updates=proof.updates,
        counted_updates=proof.counted_updates,
        unfinished_seconds=proof.unfinished_seconds,
        outer_seconds=proof.outer_seconds,
        decay=_keep_finite(proof.decay) if proof.decay is not None else None,
        expected_decay=proof.expected_decay,
        next_decay=proof.next_decay,
        closing_losses=tuple(_keep_finite(loss) for loss in closing.losses) if closing else (),
        gradients=tuple(_decode_numbers(text) for text in closing.gradients) if closing else (),
        head_gradients=tuple(_decode_numbers(text) for text in closing.head_gradients) if closing else (),
        closing_change=(_keep_finite(closing.change) or 0.0) if closing else 0.0,
        obstacle=first_steps.obstacle if first_steps else "",
        seconds=result.witness_seconds,
    )


def _make_samples_seen(rank: RankState) -> SeenByRank:
    epochs = tuple(SamplesSeen(e.epoch, e.count, e.hash_sum, e.complete) for e in rank.epoch_samples)
    return SeenByRank(rank.rank, rank.epoch_samples[0].train, epochs, rank.sample_flags)


def _decode_sketches(sketches: dict[str, str]) -> dict[str, tuple[float, ...]]:
    return {name: _decode_numbers(text) for name, text in sketches.items()}


def _decode_numbers(text: str) -> tuple[float, ...]:
    """Decode little-endian float64 numbers in base64. Those that are not finite become 0: JSON has none."""
    values = array("d")
    values.frombytes(base64.b64decode(text))
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(value if math.isfinite(value) else 0.0 for value in values)


def _find_driver_peak(rank: RankState) -> tuple[int | None, str]:
    """Return the peak that the driver counted, or why it is unknown."""
    peak, allocated = rank.gpu_memory.peak_bytes, rank.memory.device_peak_bytes
    # As a rule an allocator keeps what it has taken. But it may return some at once, after a search for the fastest
    # convolution, and the driver, asked five times a second, may not have seen that.
    if peak is not None and allocated is not None and peak < allocated:
        return None, f"NVML, asked five times a second, saw {peak} bytes where the allocator once had {allocated}"
    return peak, rank.gpu_memory.note


def _keep_finite(value: float) -> float | None:
    """Return None for a loss that is not a finite number, because JSON has no NaN."""
    return value if math.isfinite(value) else None
