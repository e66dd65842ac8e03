"""The training loop and its clock, the same for every framework. Read it top to bottom: this is how everything is
measured.

A window starts when every rank has warmed up and its device is idle. It ends when the device has done the last step.
What happens before is reported as start-up and first step. Inside a window the loop waits only for steps, and only one
short heartbeat line per second is sent, from another thread; after 5 s in one step also the calls in which it is.
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
from ..events.ranks import Resident
from ..frameworks.base import Adapter
from ..inspection import memory
from ..inspection.energy import EnergyCounter
from ..job import Measure
from .rendezvous import Rendezvous
from .witness import Witness

# With a time limit, fewer steps than these would be too few to measure.
_LEAST_WARMUP, _LEAST_RESIDENT = 2, 3
RESIDENT_WARMUP = 2  # steps before those on one batch that stays are timed
_WARMUP_SHARE = 0.2
_MOST_RESIDENT = 200  # steps that measure the speed without an input pipeline

clock = time.perf_counter


@dataclass(frozen=True)
class Window:
    """What one rank measured. Times are in seconds."""

    warmup: int
    step_seconds: list[float]
    window_seconds: float
    first_step_seconds: float
    first_loss: float
    last_loss: float
    cpu_seconds: float
    involuntary_switches: int
    waited_seconds: float = 0.0  # of the window, for samples that were not ready
    core_wait_seconds: float | None = None  # of the window, in which threads were ready to run but had no core
    unfinished_seconds: float = 0.0  # of work that the device had left when the window ended
    all_steps: int = 0  # also those before and after the window
    energy_joules: float | None = None  # of the device, or of the host, in the window
    began: float | None = None  # by ``clock``


def train(
    adapter: Adapter,
    source: Any,
    rendezvous: Rendezvous,
    heartbeat: HeartbeatSender,
    witness: Witness,
    energy: EnergyCounter | None = None,
) -> Window:
    """Warm up and measure."""
    batches, energy = source.batches(), energy or EnergyCounter()
    first_step_seconds, first_loss = take_first_step(adapter, batches, heartbeat, witness)
    warmup, steps = _warm_up(adapter, batches, rendezvous, heartbeat, witness)

    heartbeat.phase, heartbeat.step = "measure", 0
    energy.start()  # before the ranks meet, because reading it takes time
    rendezvous.exchange("start")
    usage, waited_before, began = read_process_usage(), source.waited_seconds, clock()
    with witness.time_window():
        step_seconds, window_seconds = time_steps(adapter, itertools.islice(batches, steps), heartbeat)
    used, waited_seconds = read_process_usage().subtract(usage), source.waited_seconds - waited_before
    unfinished_seconds = time_unfinished(adapter)
    energy_joules, last_loss = energy.read_joules(), adapter.loss()

    heartbeat.phase = "finish"
    rendezvous.arrive("finished")
    return Window(
        warmup=warmup,
        step_seconds=step_seconds,
        window_seconds=window_seconds,
        first_step_seconds=first_step_seconds,
        first_loss=first_loss,
        last_loss=last_loss,
        cpu_seconds=used.cpu_seconds,
        involuntary_switches=used.involuntary_switches,
        core_wait_seconds=used.core_wait_seconds,
        waited_seconds=waited_seconds,
        unfinished_seconds=unfinished_seconds,
        all_steps=warmup + steps + _keep_busy(adapter, batches, rendezvous),
        energy_joules=energy_joules,
        began=began,
    )


def _warm_up(
    adapter: Adapter, batches: Iterator[Any], rendezvous: Rendezvous, heartbeat: HeartbeatSender, witness: Witness
) -> tuple[int, int]:
    """Take the steps between the first one and the window. Return the numbers of warm-up and measured steps."""
    heartbeat.phase = "warm-up"
    warmup, steps = _agree_on_counts(adapter, batches, adapter.job.measure, rendezvous)
    witness.observe(adapter.loss())
    for number in range(2, warmup):
        take_step(adapter, batches)
        heartbeat.step = number + 1
    return warmup, steps


def _keep_busy(adapter: Adapter, batches: Iterator[Any], rendezvous: Rendezvous) -> int:
    """Take steps until all ranks have finished, and return their number.

    A rank that is done early would leave its share of memory bandwidth and network to the others. So it continues,
    uncounted. Synchronous ranks must all take the same number of steps, and they end together anyway.
    """
    steps = 0
    while adapter.job.is_asynchronous and not rendezvous.has_everyone_arrived("finished"):
        take_step(adapter, batches)
        steps += 1
    return steps


def take_step(adapter: Adapter, batches: Iterator[Any]) -> None:
    """Take a step and wait for it. Each part has a line of its own, by which the controller finds which of two ranks
    is behind (launch/trial/positions.py).
    """
    batch = next(batches)
    ticket = adapter.step(batch)
    adapter.wait(ticket)


def time_unfinished(adapter: Adapter) -> float:
    """Return how long the device is still busy: how much longer it takes to read a weight now than once more."""
    began = clock()
    adapter.proof.drain()
    middle = clock()
    adapter.proof.drain()
    return max(0.0, (middle - began) - (clock() - middle))


def take_first_step(
    adapter: Adapter, batches: Iterator[Any], heartbeat: HeartbeatSender, witness: Witness
) -> tuple[float, float]:
    """Take the first step, in which frameworks compile. Return its seconds and its loss."""
    heartbeat.phase = "first step"
    with witness.take_turn(heartbeat):
        began = clock()
        take_step(adapter, batches)
        seconds = clock() - began
    adapter.proof.drain()  # once before it verifies a window, because frameworks may compile in the first call
    loss = adapter.loss()
    witness.observe(loss)
    return seconds, loss


@dataclass(frozen=True)
class Usage:
    """What this process used: CPU seconds, how often a core was taken away, how long its threads had none."""

    cpu_seconds: float
    involuntary_switches: int
    core_wait_seconds: float | None

    def subtract(self, before: Usage) -> Usage:
        core_wait = None
        if self.core_wait_seconds is not None and before.core_wait_seconds is not None:
            core_wait = max(0.0, self.core_wait_seconds - before.core_wait_seconds)  # a thread may have ended
        switches = self.involuntary_switches - before.involuntary_switches
        return Usage(self.cpu_seconds - before.cpu_seconds, switches, core_wait)


def read_process_usage() -> Usage:
    """Return what this process has used so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_nivcsw, _read_core_wait_seconds())


def _read_core_wait_seconds() -> float | None:
    """Return how long the threads of this process were ready to run but had no core; None if it is not counted."""
    nanoseconds = 0
    try:
        for thread in Path("/proc/self/task").iterdir():
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return nanoseconds / 1e9


def _agree_on_counts(
    adapter: Adapter, batches: Iterator[Any], measure: Measure, rendezvous: Rendezvous
) -> tuple[int, int]:
    """Take the second step. Return the numbers of warm-up and measured steps.

    With a time limit, the slowest rank's second step decides for all ranks.
    """
    began = clock()
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
    adapter: Adapter, source: Any, rendezvous: Rendezvous, heartbeat: HeartbeatSender, steps: int
) -> Resident:
    """Measure how fast the same processes train on one batch that stays on the device.

    The difference is the cost of the input pipeline. It comes last, because these steps change the weights, too.
    """
    heartbeat.phase, heartbeat.step = "resident", 0
    batch = next(source.batches())
    count = max(_LEAST_RESIDENT, min(_MOST_RESIDENT, steps // 2))
    for _ in range(RESIDENT_WARMUP):
        adapter.wait(adapter.step(batch))
    rendezvous.exchange("resident")
    _, seconds = time_steps(adapter, itertools.repeat(batch, count), heartbeat)
    rendezvous.exchange("resident done")
    return Resident(count, seconds)


def read_host_peak_bytes() -> int:
    """Return the most memory that this process ever held: VmHWM, because ru_maxrss can be the parent's."""
    peak = memory.read_peak_bytes("self")
    if peak is not None:
        return peak
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
