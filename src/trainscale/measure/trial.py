"""Runs one trial of a plan in fresh processes: places its ranks, starts them, and supervises them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from ..errors import AllocationEnded
from ..launch.trial.jobs import TrialSettings, count_ports, place_trial
from ..launch.trial.trial import PortTaken, Watcher, supervise_trial
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.config import Trial
from ..worker.job import Measure
from .context import RunContext

_PORT_TRIES = 3


def run_trial(
    context: RunContext,
    trial: Trial,
    measure: Measure,
    watch: Watcher = lambda _: None,
    *,
    witness: bool = False,
    memory_share: float = 0.0,
    save_weights: Path | None = None,
) -> TrialRecord:
    """Return the record of the trial, good or failed. If another program takes one of its ports, choose other ports.
    ``jobs.TrialSettings`` explains the last three arguments.

    AllocationEnded is raised for a trial that failed because the cluster took the hosts back: it was not measured.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    plan, safety = context.plan, context.plan.experiment.safety
    slots = place_trial(trial, plan.available)
    settings = TrialSettings(
        measure=measure,
        seed=plan.experiment.work.seed,
        pythons=context.pythons,
        data_dir=plan.dataset.directory,
        timeout_seconds=safety.timeout,
        stall_seconds=safety.stall_timeout,
        logs=context.logs,
        save_weights=save_weights,
        memory_share=memory_share,
        witness=witness,
        explain=plan.experiment.measurement.explain,
        keeps_compiled=plan.experiment.resources.cache,
    )
    for _ in range(_PORT_TRIES):
        try:
            record = supervise_trial(trial, slots, settings, context.launcher, watch)
        except PortTaken:
            continue
        reason = "" if record.ok else context.launcher.find_end()
        if reason:
            raise AllocationEnded(reason)
        return record
    message = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(count_ports(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, message))
