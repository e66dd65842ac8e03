"""Training to an accuracy: epochs over real images, each followed by the whole validation set. Read it top to bottom.

An epoch's clock runs while steps are taken and stops while the network is tried on the validation set. All numbers are
of all ranks together; every rank knows them, so all stop after the same epoch.
"""

from __future__ import annotations

import math
import resource
import sys
from typing import Any

from ..events import Emitter, EpochEnd, HeartbeatSender
from ..frameworks.base import Adapter
from . import loop
from .loop import Window, clock
from .meeting import Meeting


def learn(adapter: Adapter, source: Any, meeting: Meeting, heartbeat: HeartbeatSender, emit: Emitter) -> Window:
    """All epochs as one window: the first step, in which frameworks compile, is before it."""
    job, config = adapter.job, adapter.job.config
    step_seconds: list[float] = []
    window_seconds = waited = first_step_seconds = first_loss = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(config.epochs):
        batches = source.epoch(number)
        if number == 0:
            heartbeat.phase = "first step"
            began = clock()
            adapter.wait(adapter.step(next(batches)))
            first_step_seconds, first_loss = clock() - began, adapter.loss()
        heartbeat.phase, heartbeat.step = f"epoch {number + 1}", 0
        meeting.exchange(f"epoch {number}")
        waited_before = source.waited_seconds
        taken, seconds = loop.timed(adapter, batches, heartbeat)
        epoch_waited = source.waited_seconds - waited_before
        step_seconds += taken
        window_seconds += seconds
        waited += epoch_waited
        losses, right = adapter.tally()
        steps = len(taken) + (number == 0)
        heartbeat.phase, heartbeat.step = f"validation {number + 1}", 0
        # Ranks that wait for nobody arrive apart: none shall be tried on images while another still trains.
        meeting.exchange(f"trained {number}")
        began = clock()
        found = _validate(adapter, source, heartbeat)
        evaluation_seconds = clock() - began
        ranks = meeting.exchange(
            f"validated {number}", [seconds, len(taken), steps, losses, right, epoch_waited, *found]
        )
        epoch = _epoch(number, ranks, job.batch, evaluation_seconds)
        if job.rank == 0:
            emit(epoch)
            _log(epoch)
        target = config.until_accuracy
        if target is not None and epoch.valid_accuracy >= target:
            break
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Window(
        warmup=1,
        step_seconds=step_seconds,
        window_seconds=window_seconds,
        first_step_seconds=first_step_seconds,
        first_loss=first_loss,
        last_loss=adapter.loss(),
        cpu_seconds=(after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime),
        involuntary_switches=after.ru_nivcsw - before.ru_nivcsw,
        waited_seconds=waited,
    )


def _validate(adapter: Adapter, source: Any, heartbeat: HeartbeatSender) -> tuple[float, int, int]:
    """The sum of the losses of this rank's validation images, how many were labelled right, and how many there are."""
    import numpy as np

    losses, right, images = 0.0, 0, 0
    for batch, labels, counted in source.validation():
        logits = np.asarray(adapter.predict(batch), np.float64)[:counted]
        truth = np.array(labels[:counted])
        shifted = logits - logits.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(counted), truth]
        losses += float((np.log(np.exp(shifted).sum(axis=1)) - chosen).sum())
        right += int((logits.argmax(axis=1) == truth).sum())
        images += counted
        heartbeat.step += 1
    return losses, right, images


def _epoch(number: int, ranks: list[Any], batch: int, evaluation_seconds: float) -> EpochEnd:
    """What all ranks together saw. ``samples`` and ``seconds`` leave the very first step out, accuracies do not."""
    seconds, timed, steps, losses, right, waited, valid_losses, valid_right, valid = zip(*ranks)
    return EpochEnd(
        epoch=number + 1,
        seconds=max(seconds),
        samples=batch * sum(timed),
        train_loss=_number(sum(losses) / sum(steps)),
        train_accuracy=sum(right) / (batch * sum(steps)),
        valid_loss=_number(sum(valid_losses) / sum(valid)),
        valid_accuracy=sum(valid_right) / sum(valid),
        valid_samples=sum(valid),
        waited_seconds=max(waited),
        evaluation_seconds=evaluation_seconds,
    )


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def _log(epoch: EpochEnd) -> None:
    """As MXNet's logs say it: what reads those reads ours."""
    head = f"Epoch[{epoch.epoch - 1}]"
    print(f"{head} Train-accuracy={epoch.train_accuracy:.6f}", file=sys.stderr)
    print(f"{head} Time cost={epoch.seconds:.3f}", file=sys.stderr)
    print(f"{head} Validation-accuracy={epoch.valid_accuracy:.6f}", file=sys.stderr, flush=True)
