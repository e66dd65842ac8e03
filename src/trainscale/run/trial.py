"""Runs one trial of a plan in fresh processes: places its ranks, chooses ports, has it supervised."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ..launch.launchers.base import Launcher, Process
from ..launch.trial.placement import place, ports_needed, slots_of
from ..launch.trial.supervise import PortTaken, Watcher, supervise_trial
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.config import Trial
from ..spec.plan import Plan
from ..worker.job import Measure

_PORT_TRIES = 3


def run_trial(
    trial: Trial,
    measure: Measure,
    plan: Plan,
    launcher: Launcher,
    pythons: Mapping[str, str],
    *,
    logs: Path | None = None,
    watch: Watcher = lambda _: None,
    save_weights: Path | None = None,
    memory_share: float = 0.0,
) -> TrialRecord:
    """Its record, good or failed. Ports that another program takes before they are used are chosen anew.

    ``memory_share`` of what a host has free is all that a worker may allocate there; 0 sets no limit.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    found = slots_of(trial, plan.available)

    def jobs(ports: Mapping[str, list[int]]) -> list[Process]:
        return place(
            trial,
            found,
            measure,
            seed=plan.experiment.work.seed,
            pythons=pythons,
            ports=ports,
            save_weights=save_weights,
            data_dir=plan.images.directory,
            memory_share=memory_share,
        )

    for _ in range(_PORT_TRIES):
        try:
            return supervise_trial(
                trial,
                ports_needed(found),
                jobs,
                launcher,
                timeout_seconds=plan.experiment.safety.timeout,
                stall_seconds=plan.experiment.safety.stall_timeout,
                logs=logs,
                watch=watch,
            )
        except PortTaken:
            continue
    words = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(ports_needed(found))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, words))
