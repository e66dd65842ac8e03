"""Training to an accuracy: epochs over real data, each followed by the whole validation set. Read it top to bottom.

An epoch's clock runs during its steps and stops during validation. All results are of all ranks together. Every rank
knows them, so all stop after the same epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..emitter import Emitter, HeartbeatSender
from ..events import Epoch
from ..frameworks.base import Adapter
from ..models import CROSS_ENTROPY
from ..sample import Report, keep_finite
from ..witness.witness import Witness
from . import loop
from .loop import clock
from .rendezvous import Rendezvous


def _compute_cross_entropy(logits: Any, labels: Any) -> tuple[float, int]:
    """Return the sum of the softmax cross-entropy losses and the number of correct predictions."""
    import numpy as np

    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(labels)), labels]
    losses = np.log(np.exp(shifted).sum(axis=1)) - chosen
    return float(losses.sum()), int((logits.argmax(axis=1) == labels).sum())


# Losses on the host, for the validation set, by what a network declares (models/catalog.py).
_LOSSES = {CROSS_ENTROPY: _compute_cross_entropy}


@dataclass(frozen=True)
class EpochSums:
    """What one rank counted in an epoch. The ranks exchange it."""

    seconds: float  # of the timed steps: without the very first step of the trial
    timed_steps: int
    steps: int
    losses: float
    correct: int
    waited_seconds: float
    valid_losses: float = 0.0
    valid_correct: int = 0
    valid_samples: int = 0
    unfinished_seconds: float = 0.0  # of work that the device had left when the last step had ended


def learn(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    witness: Witness,
    report: Report,
    emit: Emitter,
) -> int:
    """Train all epochs as one window. The first step, in which frameworks compile, comes before it.

    Fill in the report, and return the number of all steps.
    """
    job, target, sample = adapter.job, adapter.job.config.until_accuracy, report.sample
    step_seconds: list[float] = []
    all_sums: list[EpochSums] = []
    usage = loop.read_process_usage()
    for number in range(job.config.epochs):
        batches = source.load_epoch(number)
        if number == 0:
            loop.take_first_step(adapter, batches, heartbeat, witness, sample)
        heartbeat.phase, heartbeat.step = f"epoch {number + 1}", 0
        rendezvous.exchange(f"epoch {number}")
        epoch_step_seconds, sums = _train(adapter, source, batches, heartbeat, number, witness)
        step_seconds += epoch_step_seconds
        all_sums.append(sums)
        epoch = _validate(adapter, source, rendezvous, heartbeat, number, sums)
        if job.rank == 0:
            emit(epoch)
            _log_epoch(epoch)
        if target is not None and epoch.valid_accuracy >= target:
            break
    loop.set_usage(sample, usage)
    report.warmup, sample.last_loss = 1, keep_finite(adapter.loss())
    sample.step_seconds = tuple(round(seconds, 7) for seconds in step_seconds)
    sample.window_seconds = sum(sums.seconds for sums in all_sums)
    sample.waited_seconds = sum(sums.waited_seconds for sums in all_sums)
    report.witness.unfinished_seconds = sum(sums.unfinished_seconds for sums in all_sums)
    return 1 + len(step_seconds)


def _train(
    adapter: Adapter,
    source: Any,
    batches: Iterator[Any],
    heartbeat: HeartbeatSender,
    number: int,
    witness: Witness,
) -> tuple[list[float], EpochSums]:
    """Take the steps of an epoch. Return their times, and what this rank counted."""
    waited_before = source.waited_seconds
    with witness.time_window():
        step_seconds, seconds = loop.time_steps(adapter, batches, heartbeat)
    waited_seconds = source.waited_seconds - waited_before
    unfinished_seconds = loop.time_unfinished(adapter)
    losses, correct = adapter.tally()
    steps = len(step_seconds) + (number == 0)  # the very first step is counted, but not timed
    return step_seconds, EpochSums(
        seconds, len(step_seconds), steps, losses, correct, waited_seconds, unfinished_seconds=unfinished_seconds
    )


def _validate(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    number: int,
    sums: EpochSums,
) -> Epoch:
    """Predict the validation set, and join the results of all ranks."""
    heartbeat.phase, heartbeat.step = f"validation {number + 1}", 0
    # Asynchronous ranks finish at different times. None shall predict while another still trains.
    rendezvous.exchange(f"trained {number}")
    began = clock()
    losses, correct, samples = _predict(adapter, source, heartbeat)
    evaluation_seconds = clock() - began
    sums = replace(sums, valid_losses=losses, valid_correct=correct, valid_samples=samples)
    ranks = [EpochSums(**values) for values in rendezvous.exchange(f"validated {number}", asdict(sums))]
    return _join(number, ranks, adapter.job.batch, evaluation_seconds)


def _predict(adapter: Adapter, source: Any, heartbeat: HeartbeatSender) -> tuple[float, int, int]:
    """Return the sum of the losses of this rank's validation samples, the correct ones, and how many there are."""
    import numpy as np

    evaluate = _LOSSES[adapter.samples.loss]
    losses, correct, samples = 0.0, 0, 0
    for batch, labels, counted in source.load_validation_set():
        logits = np.asarray(adapter.predict(batch), np.float64)[:counted]
        batch_losses, batch_correct = evaluate(logits, np.array(labels[:counted]))
        losses += batch_losses
        correct += batch_correct
        samples += counted
        heartbeat.step += 1
    return losses, correct, samples


def _join(number: int, ranks: list[EpochSums], batch: int, evaluation_seconds: float) -> Epoch:
    """Return the results of all ranks. ``samples`` and ``seconds`` are without the very first step of the trial."""
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


def _log_epoch(epoch: Epoch) -> None:
    """Log the epoch in MXNet's format, so that programs which read its logs read these."""
    head = f"Epoch[{epoch.epoch - 1}]"
    print(f"{head} Train-accuracy={epoch.train_accuracy:.6f}", file=sys.stderr)
    print(f"{head} Time cost={epoch.seconds:.3f}", file=sys.stderr)
    print(f"{head} Validation-accuracy={epoch.valid_accuracy:.6f}", file=sys.stderr, flush=True)
