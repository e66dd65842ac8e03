"""Runs one trial of a plan in fresh processes: places its ranks, starts them, and supervises them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ..launch.launchers.base import Process
from ..launch.trial.placement import place, ports_needed, slots_of
from ..launch.trial.supervise import PortTaken, Watcher, supervise_trial
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
    plan = context.plan
    slots = slots_of(trial, plan.available)

    def jobs(ports: Mapping[str, list[int]]) -> list[Process]:
        return place(
            trial,
            slots,
            measure,
            seed=plan.experiment.work.seed,
            pythons=context.pythons,
            ports=ports,
            save_weights=save_weights,
            data_dir=plan.dataset.directory,
            memory_share=memory_share,
        )

    for _ in range(_PORT_TRIES):
        try:
            return supervise_trial(
                trial,
                ports_needed(slots),
                jobs,
                context.launcher,
                timeout_seconds=plan.experiment.safety.timeout,
                stall_seconds=plan.experiment.safety.stall_timeout,
                logs=context.logs,
                watch=watch,
            )
        except PortTaken:
            continue
    message = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(ports_needed(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, message))
