"""Runs one trial of a plan in fresh processes: places its ranks, starts them, and supervises them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AllocationEnded
from ..launch.launchers.base import Launcher
from ..launch.trial.placement import JobSettings, count_ports, place_trial
from ..launch.trial.supervise import PortTaken, TrialLimits, Watcher, supervise_trial
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.config import Trial
from ..worker.job import Measure
from .context import RunContext

_PORT_TRIES = 3


@dataclass(frozen=True)
class TrialOptions:
    """What most trials do not need."""

    save_weights: Path | None = None  # a folder for the weights after the last step
    memory_share: float = 0.0  # the part of a host's free memory that a worker may allocate; 0 sets no limit
    witness: bool = False  # whether the ranks report their first steps


USUAL = TrialOptions()


def run_trial(
    context: RunContext,
    trial: Trial,
    measure: Measure,
    watch: Watcher = lambda _: None,
    options: TrialOptions = USUAL,
) -> TrialRecord:
    """Return the record of the trial, good or failed. If another program takes one of its ports, choose other ports.

    AllocationEnded is raised for a trial that failed because the cluster took the hosts back: it was not measured.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    plan, safety = context.plan, context.plan.experiment.safety
    slots = place_trial(trial, plan.available)
    settings = JobSettings(
        measure=measure,
        seed=plan.experiment.work.seed,
        pythons=context.pythons,
        data_dir=plan.dataset.directory,
        save_weights=options.save_weights,
        memory_share=options.memory_share,
        witness=options.witness,
        explain=plan.experiment.measurement.explain,
        keeps_compiled=plan.experiment.resources.cache,
    )
    limits = TrialLimits(safety.timeout, safety.stall_timeout, context.logs)
    for _ in range(_PORT_TRIES):
        try:
            record = supervise_trial(trial, slots, settings, context.launcher, limits, watch)
            return record if record.ok else _check_allocation(record, context.launcher)
        except PortTaken:
            continue
    message = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(count_ports(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, message))


def _check_allocation(record: TrialRecord, launcher: Launcher) -> TrialRecord:
    """Return the record of a failed trial, unless it failed because its hosts do not belong to the run any more."""
    reason = launcher.find_end()
    if reason:
        raise AllocationEnded(reason)
    return record
