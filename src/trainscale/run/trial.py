"""Runs one trial of a plan in fresh processes: places its ranks, starts them, and supervises them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from ..launch.trial.placement import JobSettings, ports_needed, slots_of
from ..launch.trial.supervise import PortTaken, TrialLimits, Watcher, supervise_trial
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.config import Trial
from ..worker.job import Measure
from .context import RunContext

_PORT_TRIES = 3


def run_trial(
    context: RunContext,
    trial: Trial,
    measure: Measure,
    *,
    watch: Watcher = lambda _: None,
    save_weights: Path | None = None,
    memory_share: float = 0.0,
) -> TrialRecord:
    """Return the record of the trial, good or failed. If another program takes one of its ports, choose other ports.

    ``memory_share`` is the part of a host's free memory that a worker may allocate; 0 sets no limit.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    plan, safety = context.plan, context.plan.experiment.safety
    slots = slots_of(trial, plan.available)
    seed = plan.experiment.work.seed
    settings = JobSettings(measure, seed, context.pythons, plan.dataset.directory, save_weights, memory_share)
    limits = TrialLimits(safety.timeout, safety.stall_timeout, context.logs)
    for _ in range(_PORT_TRIES):
        try:
            return supervise_trial(trial, slots, settings, context.launcher, limits, watch)
        except PortTaken:
            continue
    message = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(ports_needed(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, message))
