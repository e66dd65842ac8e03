"""What an explanation needs besides the window: exchanges alone, and steps with other batches. Both come last."""

from __future__ import annotations

import traceback

from ..data.synthetic import make_samples
from ..emitter import HeartbeatSender
from ..frameworks.base import Adapter
from ..sample import BatchTime, ExchangeTime
from . import loop
from .rendezvous import Rendezvous

SIZES = (4096, 65536, 2**20, 25 * 2**20)  # bytes; the last is that of PyTorch's buckets
_GROWING = 2**20  # bytes from which the time of an exchange grows with its size
_MOST_EXCHANGES = 20  # of one size
_WINDOW_SHARE = 0.05  # of the window that all exchanges, and the steps with each batch, may take
_LEAST_SECONDS, _MOST_SECONDS = 0.2, 5.0  # that they may take whatever the window
_LEAST_STEPS, _WARMUP = 3, 2


def measure_exchanges(
    adapter: Adapter, parameters: int, rendezvous: Rendezvous, heartbeat: HeartbeatSender, window_seconds: float
) -> tuple[ExchangeTime, ...]:
    """Exchange gradients of several sizes, the smallest first, up to those of the network.

    The slowest rank's first exchange of a size decides for all ranks how often it is repeated. Its mean decides whether
    a larger size would take too long; that of a small size does not, because it is latency, which does not grow.
    """
    heartbeat.phase, heartbeat.step = "exchange", 0
    gradients = parameters * (8 if adapter.config.precision == "fp64" else 4)
    limit = max(rendezvous.exchange("exchange limit", compute_allowed_seconds(window_seconds)))
    sizes = choose_exchange_sizes(gradients)
    measured = []
    for index, size in enumerate(sizes):
        exchange = adapter.proof.make_exchange(size)
        if exchange is None:
            continue
        rendezvous.exchange(f"exchange {size}")
        began = loop.clock()
        exchange()
        slowest = max(rendezvous.exchange(f"first exchange {size}", loop.clock() - began))
        count = max(1, min(_MOST_EXCHANGES, int(limit / len(sizes) / slowest)))
        began = loop.clock()
        for _ in range(count):
            exchange()
        seconds = loop.clock() - began
        measured.append(ExchangeTime(size, count, seconds))
        heartbeat.step += 1
        mean = max(rendezvous.exchange(f"mean exchange {size}", seconds / count))
        following = sizes[index + 1] if index + 1 < len(sizes) else 0
        if size >= _GROWING and mean * following / size > limit:
            break
    rendezvous.exchange("exchanges done")
    return tuple(measured)


def choose_exchange_sizes(gradients: int) -> list[int]:
    """Return the sizes in bytes: the usual ones below the network's gradients, and these."""
    return [*(size for size in SIZES if size < gradients), gradients]


def compute_allowed_seconds(window_seconds: float) -> float:
    return min(_MOST_SECONDS, max(_LEAST_SECONDS, _WINDOW_SHARE * window_seconds))


def measure_batches(adapter: Adapter, heartbeat: HeartbeatSender, window_seconds: float) -> tuple[BatchTime, ...]:
    """Take steps with two other batches, on samples that stay on the device, unless that would compile anew."""
    if not adapter.proof.takes_any_batch:
        return ()
    heartbeat.phase, heartbeat.step = "batches", 0
    measured = []
    try:
        for batch in choose_further_batches(adapter.job.batch):
            measured.append(_time_batch(adapter, batch, heartbeat, compute_allowed_seconds(window_seconds)))
    except Exception:  # the trial has been measured; what a user's network does with another batch must not fail it
        traceback.print_exc()
    return tuple(measured)


def choose_further_batches(batch: int) -> list[int]:
    """Return a half and a quarter, which surely fit into memory. Batches below 4 are doubled instead."""
    return [batch // 2, batch // 4] if batch >= 4 else [2 * batch, 4 * batch]


def _time_batch(adapter: Adapter, batch: int, heartbeat: HeartbeatSender, limit: float) -> BatchTime:
    job, samples = adapter.job, adapter.samples
    shape = samples.shape(job.config)
    placed = adapter.place(*make_samples(job.seed, 0, batch, shape, job.config.classes, samples.dtype))
    for _ in range(_WARMUP):
        began = loop.clock()
        adapter.wait(adapter.step(placed))
        seconds = loop.clock() - began
    steps = max(_LEAST_STEPS, min(_MOST_EXCHANGES, int(limit / max(seconds, 1e-9))))
    _, seconds = loop.time_steps(adapter, [placed] * steps, heartbeat)
    return BatchTime(batch, steps, seconds)
