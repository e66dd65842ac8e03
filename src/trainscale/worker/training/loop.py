"""The training loop and its clock, the same for every framework. Read it top to bottom: this
is how everything is measured.

A window starts when every rank has warmed up and its device is idle. It ends when the device
has done the last step. What happens before is reported as start-up and first step. Inside a
window the loop waits only for steps, and another thread sends one short heartbeat per second.
"""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..data.source import make_batch
from ..events import Emitter, Epoch, HeartbeatSender
from ..frameworks.base import Adapter
from ..inspection.usage import EnergyCounter, read_process_usage, set_usage
from ..models import CROSS_ENTROPY
from ..sample import BatchTime, ExchangeTime, RankSample, Report, keep_finite
from ..witness.witness import Witness
from .rendezvous import Rendezvous

# With a time limit, fewer steps than these would be too few to measure.
_LEAST_WARMUP, _LEAST_RESIDENT = 2, 3
RESIDENT_WARMUP = 2  # steps before those on one batch that stays are timed
_WARMUP_SHARE = 0.2
_MOST_RESIDENT = 200  # steps that measure the speed without an input pipeline

clock = time.perf_counter


def train(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    witness: Witness,
    report: Report,
    energy: EnergyCounter | None = None,
) -> int:
    """Warm up and measure. Fill in the report, and return the number of all steps."""
    sample, batches, energy = report.sample, source.batches(), energy or EnergyCounter()
    take_first_step(adapter, batches, heartbeat, witness, sample)

    # With a time limit, the slowest rank's second step decides for all ranks how many steps they take.
    heartbeat.phase, measure, began = "warm-up", adapter.job.measure, clock()
    take_step(adapter, batches)
    slowest = max(rendezvous.exchange("pace", clock() - began))
    warmup, steps = measure.warmup, measure.steps
    if measure.seconds is not None:
        affordable = int(measure.seconds / slowest)
        warmup = min(warmup, max(_LEAST_WARMUP, int(affordable * _WARMUP_SHARE)))
        steps = min(steps, max(measure.least_steps, affordable - warmup))
    witness.observe(adapter.loss())
    for number in range(2, warmup):
        take_step(adapter, batches)
        heartbeat.step = number + 1

    heartbeat.phase, heartbeat.step = "measure", 0
    energy.start()  # before the ranks meet, because reading it takes time
    rendezvous.exchange("start")
    usage, waited_before, report.window_began = read_process_usage(), source.waited_seconds, clock()
    with witness.time_window():
        step_seconds, sample.window_seconds = time_steps(adapter, itertools.islice(batches, steps), heartbeat)
    set_usage(sample, usage)
    sample.waited_seconds = source.waited_seconds - waited_before
    report.witness.unfinished_seconds = time_unfinished(adapter)
    sample.energy_joules, sample.last_loss = energy.read_joules(), keep_finite(adapter.loss())
    sample.step_seconds = tuple(round(seconds, 7) for seconds in step_seconds)

    heartbeat.phase = "finish"
    rendezvous.arrive("finished")
    # A rank that is done early would leave its share of memory bandwidth and network to the
    # others, so it continues, uncounted. Synchronous ranks end together anyway.
    report.warmup, all_steps = warmup, warmup + steps
    while adapter.job.is_asynchronous and not rendezvous.has_everyone_arrived("finished"):
        take_step(adapter, batches)
        all_steps += 1
    return all_steps


def take_step(adapter: Adapter, batches: Iterator[Any]) -> None:
    adapter.wait(adapter.step(next(batches)))


def take_first_step(
    adapter: Adapter, batches: Iterator[Any], heartbeat: HeartbeatSender, witness: Witness, sample: RankSample
) -> None:
    """Take the first step, in which frameworks compile."""
    heartbeat.phase = "first step"
    with witness.take_turn(heartbeat):
        began = clock()
        take_step(adapter, batches)
        sample.first_step_seconds = clock() - began
    adapter.drain()  # frameworks may compile in the first call; later ones verify a window
    loss = adapter.loss()
    sample.first_loss = keep_finite(loss)
    witness.observe(loss)


def time_steps(adapter: Adapter, batches: Iterable[Any], heartbeat: HeartbeatSender) -> tuple[list[float], float]:
    """Take steps. Return the seconds of each step, and of all of them together.

    The loop waits for a step ``lag`` steps later, so that a device is never idle.
    """
    pending: deque[Any] = deque()
    tickets = [adapter.mark()]
    stamps = [clock()]
    for batch in batches:
        ticket = adapter.step(batch)
        tickets.append(ticket)
        pending.append(ticket)
        if len(pending) > adapter.lag:
            adapter.wait(pending.popleft())
            stamps.append(clock())
        heartbeat.step += 1
    for ticket in pending:
        adapter.wait(ticket)
        stamps.append(clock())
    window_seconds = stamps[-1] - stamps[0]
    on_device = adapter.seconds_between(tickets)
    return on_device or [b - a for a, b in zip(stamps, stamps[1:])], window_seconds


def time_unfinished(adapter: Adapter) -> float:
    """Return how much longer it takes to read a weight now than once more."""
    began = clock()
    adapter.drain()
    middle = clock()
    adapter.drain()
    return max(0.0, (middle - began) - (clock() - middle))


# ---- training to an accuracy: epochs over real data, each followed by the whole validation set


def learn(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    witness: Witness,
    report: Report,
    emit: Emitter,
) -> int:
    """Train all epochs as one window. Fill in the report, and return the number of all steps.

    An epoch's clock runs during its steps and stops during validation. All results are of all
    ranks together. Every rank knows them, so all stop after the same epoch.
    """
    job, target, sample = adapter.job, adapter.job.config.until_accuracy, report.sample
    step_seconds: list[float] = []
    sample.window_seconds = sample.waited_seconds = 0.0
    usage = read_process_usage()
    for number in range(job.config.epochs):
        batches = source.load_epoch(number)
        if number == 0:
            take_first_step(adapter, batches, heartbeat, witness, sample)
        heartbeat.phase, heartbeat.step = f"epoch {number + 1}", 0
        rendezvous.exchange(f"epoch {number}")
        waited_before = source.waited_seconds
        with witness.time_window():
            epoch_step_seconds, seconds = time_steps(adapter, batches, heartbeat)
        waited_seconds = source.waited_seconds - waited_before
        report.witness.unfinished_seconds += time_unfinished(adapter)
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
        counts = [seconds, timed_steps, steps, losses, correct, waited_seconds, *predicted]
        by_count = zip(*rendezvous.exchange(f"validated {number}", counts))  # each of all ranks
        all_seconds, all_timed, all_steps, all_losses, all_correct, all_waits, *validated = by_count
        valid_losses, valid_correct, valid_samples = map(sum, validated)
        epoch = Epoch(
            epoch=number + 1,
            seconds=max(all_seconds),
            samples=job.batch * sum(all_timed),
            train_loss=keep_finite(sum(all_losses) / sum(all_steps)),
            train_accuracy=sum(all_correct) / (job.batch * sum(all_steps)),
            valid_loss=keep_finite(valid_losses / valid_samples),
            valid_accuracy=valid_correct / valid_samples,
            valid_samples=valid_samples,
            waited_seconds=max(all_waits),
            evaluation_seconds=evaluation_seconds,
        )
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
    """Return the summed losses of this rank's validation samples, how many are correct, and all."""
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


# ---- what is measured after the window, because it changes the weights or disturbs the device


def measure_resident(
    adapter: Adapter, source: Any, rendezvous: Rendezvous, heartbeat: HeartbeatSender, sample: RankSample
) -> None:
    """Train on one batch that stays on the device. The difference is the cost of the input pipeline."""
    heartbeat.phase, heartbeat.step = "resident", 0
    batch = source.load_first_batch()
    count = max(_LEAST_RESIDENT, min(_MOST_RESIDENT, len(sample.step_seconds) // 2))
    for _ in range(RESIDENT_WARMUP):
        adapter.wait(adapter.step(batch))
    rendezvous.exchange("resident")
    sample.resident_steps = count
    _, sample.resident_seconds = time_steps(adapter, itertools.repeat(batch, count), heartbeat)
    rendezvous.exchange("resident done")


EXCHANGE_SIZES = (4096, 65536, 2**20, 25 * 2**20)  # bytes; the last is that of PyTorch's buckets
_GROWING = 2**20  # bytes from which the time of an exchange grows with its size
_MOST_REPEATS = 20  # of exchanges of one size, and of steps with one batch
_WINDOW_SHARE = 0.05  # of the window that all exchanges, and the steps with each batch, may take
_LEAST_SECONDS, _MOST_SECONDS = 0.2, 5.0  # that they may take whatever the window
_LEAST_STEPS, _BATCH_WARMUP = 3, 2


def measure_exchanges(
    adapter: Adapter, parameters: int, rendezvous: Rendezvous, heartbeat: HeartbeatSender, window_seconds: float
) -> tuple[ExchangeTime, ...]:
    """Exchange gradients of several sizes, the smallest first, up to those of the network.

    The slowest rank's first exchange of a size decides for all ranks how often it is repeated.
    Its mean decides whether a larger size would take too long, unless it is only latency.
    """
    heartbeat.phase, heartbeat.step = "exchange", 0
    gradients = parameters * (8 if adapter.config.precision == "fp64" else 4)
    limit = max(rendezvous.exchange("exchange limit", _compute_allowed_seconds(window_seconds)))
    sizes = [*(size for size in EXCHANGE_SIZES if size < gradients), gradients]
    measured = []
    for size, following in zip(sizes, [*sizes[1:], 0]):
        exchange = adapter.make_exchange(size)
        if exchange is None:
            continue
        rendezvous.exchange(f"exchange {size}")
        began = clock()
        exchange()
        slowest = max(rendezvous.exchange(f"first exchange {size}", clock() - began))
        count = max(1, min(_MOST_REPEATS, int(limit / len(sizes) / slowest)))
        began = clock()
        for _ in range(count):
            exchange()
        seconds = clock() - began
        measured.append(ExchangeTime(size, count, seconds))
        heartbeat.step += 1
        mean = max(rendezvous.exchange(f"mean exchange {size}", seconds / count))
        if size >= _GROWING and mean * following / size > limit:
            break
    rendezvous.exchange("exchanges done")
    return tuple(measured)


def measure_batches(adapter: Adapter, heartbeat: HeartbeatSender, window_seconds: float) -> tuple[BatchTime, ...]:
    """Take steps with a half and a quarter of the batch, unless that would compile anew.

    Both surely fit into memory. Batches below 4 are doubled instead.
    """
    if not adapter.takes_any_batch:
        return ()
    heartbeat.phase, heartbeat.step = "batches", 0
    job, own = adapter.job, adapter.job.batch
    measured = []
    try:
        for batch in (own // 2, own // 4) if own >= 4 else (2 * own, 4 * own):
            placed = make_batch(replace(job, batch=batch), adapter.place)
            for _ in range(_BATCH_WARMUP):
                began = clock()
                adapter.wait(adapter.step(placed))
                seconds = clock() - began
            affordable = int(_compute_allowed_seconds(window_seconds) / max(seconds, 1e-9))
            steps = max(_LEAST_STEPS, min(_MOST_REPEATS, affordable))
            _, seconds = time_steps(adapter, [placed] * steps, heartbeat)
            measured.append(BatchTime(batch, steps, seconds))
    except Exception:  # a user's network may refuse a batch; the trial has been measured
        traceback.print_exc()
    return tuple(measured)


def _compute_allowed_seconds(window_seconds: float) -> float:
    return min(_MOST_SECONDS, max(_LEAST_SECONDS, _WINDOW_SHARE * window_seconds))
