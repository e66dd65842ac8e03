"""The training loop and its clock, the same for every framework. Read it top to bottom: this is how everything is
measured.

A window starts when every rank has warmed up and its device is idle. It ends when the device has done the last step.
What happens before is reported as start-up and first step. Inside a window the loop waits only for steps, and only one
short heartbeat line per second is sent, from another thread; after 5 s in one step also the call stack.
"""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..emitter import HeartbeatSender
from ..frameworks.base import Adapter
from ..inspection.usage import EnergyCounter, read_peak_bytes
from ..sample import RankSample, Report, keep_finite
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
    """Warm up and measure. Fill in the report, and return the number of all steps, also of those outside the window."""
    sample, batches, energy = report.sample, source.batches(), energy or EnergyCounter()
    take_first_step(adapter, batches, heartbeat, witness, sample)
    heartbeat.phase = "warm-up"
    report.warmup, steps = _agree_on_counts(adapter, batches, rendezvous)
    witness.observe(adapter.loss())
    for number in range(2, report.warmup):
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
    # A rank that is done early would leave its share of memory bandwidth and network to the others, so it continues,
    # uncounted. Synchronous ranks must all take the same number of steps, and they end together anyway.
    all_steps = report.warmup + steps
    while adapter.job.is_asynchronous and not rendezvous.has_everyone_arrived("finished"):
        take_step(adapter, batches)
        all_steps += 1
    return all_steps


def take_step(adapter: Adapter, batches: Iterator[Any]) -> None:
    """Take a step and wait for it."""
    adapter.wait(adapter.step(next(batches)))


def time_unfinished(adapter: Adapter) -> float:
    """Return how long the device is still busy: how much longer it takes to read a weight now than once more."""
    began = clock()
    adapter.proof.drain()
    middle = clock()
    adapter.proof.drain()
    return max(0.0, (middle - began) - (clock() - middle))


def take_first_step(
    adapter: Adapter, batches: Iterator[Any], heartbeat: HeartbeatSender, witness: Witness, sample: RankSample
) -> None:
    """Take the first step, in which frameworks compile."""
    heartbeat.phase = "first step"
    with witness.take_turn(heartbeat):
        began = clock()
        take_step(adapter, batches)
        sample.first_step_seconds = clock() - began
    adapter.proof.drain()  # once before it verifies a window, because frameworks may compile in the first call
    loss = adapter.loss()
    sample.first_loss = keep_finite(loss)
    witness.observe(loss)


@dataclass(frozen=True)
class Usage:
    """What this process used: CPU seconds, how often a core was taken away, how long its threads had none."""

    cpu_seconds: float
    involuntary_switches: int
    core_wait_seconds: float | None


def read_process_usage() -> Usage:
    """Return what this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_nivcsw, _read_core_wait_seconds())


def set_usage(sample: RankSample, before: Usage) -> None:
    """Set what this process has used since ``before``."""
    after = read_process_usage()
    sample.cpu_seconds = after.cpu_seconds - before.cpu_seconds
    sample.involuntary_switches = after.involuntary_switches - before.involuntary_switches
    if after.core_wait_seconds is not None and before.core_wait_seconds is not None:
        sample.core_wait_seconds = max(0.0, after.core_wait_seconds - before.core_wait_seconds)  # a thread may end


def _read_core_wait_seconds() -> float | None:
    """Return how long the threads of this process were ready to run but had no core; None if it is not counted."""
    nanoseconds = 0
    try:
        for thread in Path("/proc/self/task").iterdir():
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return nanoseconds / 1e9


def _agree_on_counts(adapter: Adapter, batches: Iterator[Any], rendezvous: Rendezvous) -> tuple[int, int]:
    """Take the second step. Return the numbers of warm-up and measured steps.

    With a time limit, the slowest rank's second step decides for all ranks.
    """
    measure, began = adapter.job.measure, clock()
    take_step(adapter, batches)
    slowest = max(rendezvous.exchange("pace", clock() - began))
    if measure.seconds is None:
        return measure.warmup, measure.steps
    affordable = int(measure.seconds / slowest)
    warmup = min(measure.warmup, max(_LEAST_WARMUP, int(affordable * _WARMUP_SHARE)))
    return warmup, min(measure.steps, max(measure.least_steps, affordable - warmup))


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


def measure_resident(
    adapter: Adapter, source: Any, rendezvous: Rendezvous, heartbeat: HeartbeatSender, sample: RankSample
) -> None:
    """Measure how fast the same processes train on one batch that stays on the device.

    The difference is the cost of the input pipeline. It comes last, because these steps change the weights, too.
    """
    heartbeat.phase, heartbeat.step = "resident", 0
    batch = next(source.batches())
    count = max(_LEAST_RESIDENT, min(_MOST_RESIDENT, len(sample.step_seconds) // 2))
    for _ in range(RESIDENT_WARMUP):
        adapter.wait(adapter.step(batch))
    rendezvous.exchange("resident")
    sample.resident_steps = count
    _, sample.resident_seconds = time_steps(adapter, itertools.repeat(batch, count), heartbeat)
    rendezvous.exchange("resident done")


def read_host_peak_bytes() -> int:
    """Return the most memory that this process ever held: VmHWM, because ru_maxrss can be the parent's."""
    peak = read_peak_bytes("self")
    if peak is not None:
        return peak
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
