"""Computes what the first steps of a trial must do to its weights: one process on the host of rank 0, untimed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...spec.config import Trial
from ...spec.placement import Slot
from ...worker.allocator import ALLOCATORS, TUNED
from ...worker.job import Measure, Task
from ..launchers.base import ITS_START, Launcher
from ..trial.jobs import TrialSettings, build_jobs, count_ports
from .numbers import EncodedNumbers, OnConnect, compute_numbers

_SECONDS = 3600.0


@dataclass(frozen=True)
class ExpectationTask:
    """Whose first steps to compute, and with which interpreter if the host has none of its own."""

    trial: Trial
    slots: tuple[Slot, ...]
    python: str
    seed: int
    data_dir: str = ""


def compute(launcher: Launcher, task: ExpectationTask, on_connect: OnConnect = lambda _: None) -> EncodedNumbers:
    """Return the numbers, or raise NumbersFailed. ``on_connect`` gets the connection, to end it from another thread."""
    config, host = task.trial.config, task.slots[0].host
    python = host.pythons.get(config.framework) or task.python
    settings = TrialSettings(Measure(), task.seed, {config.framework: python}, data_dir=task.data_dir)
    no_ports = {name: [0] * count for name, count in count_ports(task.slots).items()}  # it connects to no other process
    job = replace(build_jobs(task.trial, task.slots, no_ports, settings)[0], dropout=False)
    command = [python, ITS_START, "expectation"]
    rank = Task(host.name, 0, command, job.to_json(), defaults=ALLOCATORS[TUNED])
    return compute_numbers(launcher, host.name, lambda _: rank, _SECONDS, on_connect)
