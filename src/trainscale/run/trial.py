"""Runs one trial of a plan in fresh processes: places its ranks, chooses ports, has it supervised."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ..launch.launchers.base import Launcher
from ..launch.trial.placement import JobSettings, ports_needed, slots_of
from ..launch.trial.supervise import PortTaken, TrialLimits, Watcher, supervise_trial
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
    experiment = plan.experiment
    slots = slots_of(trial, plan.supply)
    settings = JobSettings(measure, experiment.seed, pythons, plan.images.directory, save_weights, memory_share)
    limits = TrialLimits(experiment.timeout, experiment.stall_timeout, logs)
    for _ in range(_PORT_TRIES):
        try:
            return supervise_trial(trial, slots, settings, launcher, limits, watch)
        except PortTaken:
            continue
    words = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(ports_needed(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, words))
