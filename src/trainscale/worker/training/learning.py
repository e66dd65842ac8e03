"""Training to an accuracy: epochs over real data, each followed by the whole validation set.

An epoch's clock runs during its steps and stops during validation. All results are of all ranks
together. Every rank knows them, so all stop after the same epoch.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

from ..events import Emitter, Epoch, HeartbeatSender
from ..frameworks.base import Adapter
from ..inspection.usage import read_process_usage, set_usage
from ..models import CROSS_ENTROPY
from ..sample import Report, keep_finite
from ..witness.witness import Witness
from . import loop
from .loop import clock
from .rendezvous import Rendezvous


@dataclass(frozen=True)
class EpochSums:
    """What one rank counted in an epoch. The ranks exchange it."""

    seconds: float  # of the timed steps: without the very first step of the trial
    timed_steps: int
    steps: int
    losses: float
    correct: int
    waited_seconds: float
    valid_losses: float
    valid_correct: int
    valid_samples: int


def learn(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    witness: Witness,
    report: Report,
    emit: Emitter,
) -> int:
    """Train all epochs as one window. Fill in the report, and return the number of all steps."""
    job, target, sample = adapter.job, adapter.job.config.until_accuracy, report.sample
    step_seconds: list[float] = []
    sample.window_seconds = sample.waited_seconds = 0.0
    usage = read_process_usage()
    for number in range(job.config.epochs):
        batches = source.load_epoch(number)
        if number == 0:
            loop.take_first_step(adapter, batches, heartbeat, witness, sample)
        heartbeat.phase, heartbeat.step = f"epoch {number + 1}", 0
        rendezvous.exchange(f"epoch {number}")
        waited_before = source.waited_seconds
        with witness.time_window():
            epoch_step_seconds, seconds = loop.time_steps(adapter, batches, heartbeat)
        waited_seconds = source.waited_seconds - waited_before
        report.witness.unfinished_seconds += loop.time_unfinished(adapter)
        timed_steps, (losses, correct) = len(epoch_step_seconds), adapter.tally()
        steps = timed_steps + (number == 0)  # the very first step is counted, but not timed
        step_seconds += epoch_step_seconds
        sample.window_seconds += seconds
        sample.waited_seconds += waited_seconds

        heartbeat.phase, heartbeat.step = f"validation {number + 1}", 0
        # Asynchronous ranks finish at different times. None shall predict while another still trains.
        rendezvous.exchange(f"trained {number}")
        began = clock()
        predicted = _predict(adapter, source, heartbeat)
        evaluation_seconds = clock() - began
        sums = EpochSums(seconds, timed_steps, steps, losses, correct, waited_seconds, *predicted)
        ranks = [EpochSums(**values) for values in rendezvous.exchange(f"validated {number}", asdict(sums))]
        epoch = _join(number, ranks, job.batch, evaluation_seconds)
        if job.rank == 0:
            emit(epoch)
            # MXNet's format, so that programs which read its logs read these.
            head = f"Epoch[{number}]"
            print(f"{head} Train-accuracy={epoch.train_accuracy:.6f}", file=sys.stderr)
            print(f"{head} Time cost={epoch.seconds:.3f}", file=sys.stderr)
            print(f"{head} Validation-accuracy={epoch.valid_accuracy:.6f}", file=sys.stderr, flush=True)
        if target is not None and epoch.valid_accuracy >= target:
            break
    set_usage(sample, usage)
    report.warmup, sample.last_loss = 1, keep_finite(adapter.loss())
    sample.step_seconds = tuple(round(seconds, 7) for seconds in step_seconds)
    return 1 + len(step_seconds)


def _predict(adapter: Adapter, source: Any, heartbeat: HeartbeatSender) -> tuple[float, int, int]:
    """Return the summed losses of this rank's validation samples, the correct ones, and all."""
    import numpy as np

    assert adapter.samples.loss == CROSS_ENTROPY
    losses, correct, samples = 0.0, 0, 0
    for batch, labels, counted in source.load_validation_set():
        right = np.array(labels[:counted])
        logits = np.asarray(adapter.predict(batch), np.float64)[:counted]
        shifted = logits - logits.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(counted), right]
        losses += float((np.log(np.exp(shifted).sum(axis=1)) - chosen).sum())
        correct += int((logits.argmax(axis=1) == right).sum())
        samples += counted
        heartbeat.step += 1
    return losses, correct, samples


def _join(number: int, ranks: list[EpochSums], batch: int, evaluation_seconds: float) -> Epoch:
    """Return the results of all ranks, timed without the very first step of the trial."""
    steps = sum(rank.steps for rank in ranks)
    valid_samples = sum(rank.valid_samples for rank in ranks)
    return Epoch(
        epoch=number + 1,
        seconds=max(rank.seconds for rank in ranks),
        samples=batch * sum(rank.timed_steps for rank in ranks),
        train_loss=keep_finite(sum(rank.losses for rank in ranks) / steps),
        train_accuracy=sum(rank.correct for rank in ranks) / (batch * steps),
        valid_loss=keep_finite(sum(rank.valid_losses for rank in ranks) / valid_samples),
        valid_accuracy=sum(rank.valid_correct for rank in ranks) / valid_samples,
        valid_samples=valid_samples,
        waited_seconds=max(rank.waited_seconds for rank in ranks),
        evaluation_seconds=evaluation_seconds,
    )
