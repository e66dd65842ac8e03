"""The one training loop and the one clock, for every framework. Read it top to bottom: this is how everything is
measured.

A window starts when every rank has warmed up and its device is idle, and ends when the device has done the last step.
What happens before is reported as start-up and first step. Inside a window nothing is waited for but the steps
themselves; one short heartbeat line a second, from a thread of its own, is all that is sent.
"""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..events import HeartbeatSender, Resident
from ..frameworks.base import Adapter
from ..inspection import memory
from ..job import Measure
from .meeting import Meeting

# With a time limit, fewer steps than these would leave nothing to measure.
_LEAST_WARMUP, _LEAST_STEPS = 2, 3
_WARMUP_SHARE = 0.2
_MOST_RESIDENT = 200  # steps that tell how fast it would go without an input pipeline

clock = time.perf_counter


@dataclass(frozen=True)
class Window:
    """What one rank saw. Times are seconds."""

    warmup: int
    step_seconds: list[float]
    window_seconds: float
    first_step_seconds: float
    first_loss: float
    last_loss: float
    cpu_seconds: float
    involuntary_switches: int
    waited_seconds: float = 0.0  # of the window: for images that were not ready


def train(
    adapter: Adapter,
    source: Any,
    measure: Measure,
    meeting: Meeting,
    heartbeat: HeartbeatSender,
    together: bool,
) -> Window:
    """Warm up, measure, and give back what was seen. ``together``: the strategy keeps the ranks in step by itself."""
    batches = source.batches()
    heartbeat.phase = "first step"
    began = clock()
    adapter.wait(adapter.step(next(batches)))
    first_step_seconds = clock() - began
    first_loss = adapter.loss()

    heartbeat.phase = "warm-up"
    warmup, steps = _agree(adapter, batches, measure, meeting)
    for number in range(2, warmup):
        adapter.wait(adapter.step(next(batches)))
        heartbeat.step = number + 1

    heartbeat.phase, heartbeat.step = "measure", 0
    meeting.exchange("start")
    before, waited = resource.getrusage(resource.RUSAGE_SELF), source.waited_seconds
    step_seconds, window_seconds = timed(adapter, itertools.islice(batches, steps), heartbeat)
    after, waited = resource.getrusage(resource.RUSAGE_SELF), source.waited_seconds - waited
    last_loss = adapter.loss()

    heartbeat.phase = "finish"
    meeting.arrive("finished")
    # A rank that is done early would leave its share of memory bandwidth and network to the others: it goes on,
    # uncounted. Ranks that train in step must all take the same number of steps, and end together anyway.
    while not together and not meeting.everybody_here("finished"):
        adapter.wait(adapter.step(next(batches)))
    return Window(
        warmup=warmup,
        step_seconds=step_seconds,
        window_seconds=window_seconds,
        first_step_seconds=first_step_seconds,
        first_loss=first_loss,
        last_loss=last_loss,
        cpu_seconds=(after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime),
        involuntary_switches=after.ru_nivcsw - before.ru_nivcsw,
        waited_seconds=waited,
    )


def _agree(adapter: Adapter, batches: Iterator[Any], measure: Measure, meeting: Meeting) -> tuple[int, int]:
    """The second step sets the pace; with a time limit, the slowest rank's pace decides for all."""
    began = clock()
    adapter.wait(adapter.step(next(batches)))
    slowest = max(meeting.exchange("pace", clock() - began))
    if measure.seconds is None:
        return measure.warmup, measure.steps
    affordable = int(measure.seconds / slowest)
    warmup = min(measure.warmup, max(_LEAST_WARMUP, int(affordable * _WARMUP_SHARE)))
    return warmup, min(measure.steps, max(_LEAST_STEPS, affordable - warmup))


def timed(adapter: Adapter, batches: Iterable[Any], heartbeat: HeartbeatSender) -> tuple[list[float], float]:
    """Seconds of each step, and of all of them together. Steps are waited for ``lag`` behind, so a device never
    idles.
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


def resident(adapter: Adapter, source: Any, meeting: Meeting, heartbeat: HeartbeatSender, steps: int) -> Resident:
    """How fast the same processes train on one batch that stays on the device: what the images cost is the difference.

    After everything else, because these steps change the weights too.
    """
    heartbeat.phase, heartbeat.step = "resident", 0
    batch = next(source.batches())
    count = max(_LEAST_STEPS, min(_MOST_RESIDENT, steps // 2))
    for _ in range(_LEAST_WARMUP):
        adapter.wait(adapter.step(batch))
    meeting.exchange("resident")
    _, seconds = timed(adapter, itertools.repeat(batch, count), heartbeat)
    meeting.exchange("resident done")
    return Resident(count, seconds)


def host_peak_bytes() -> int:
    """The most memory this process ever held. VmHWM, because ru_maxrss can be inherited from the parent."""
    peak = memory.peak_bytes("self")
    if peak is not None:
        return peak
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
