"""Conducts a run: takes the next trial, has it launched, writes the journal, until nothing is left to do.

This is the story of trainscale in one function, ``measure_plan``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ..launch.launchers.base import Launcher
from ..launch.trial.observer import TrialObserver
from ..record.journal import Journal
from ..record.trial import MISSING, Failure, TrialRecord
from ..spec.config import Trial
from ..spec.placement import count_hosts
from ..spec.plan import Plan
from .order import NextTrial, next_trial
from .trial import run_trial


@dataclass
class RunListener:
    """What the terminal wants to know while a run goes on."""

    trial_begins: Callable[[NextTrial], None] = lambda _: None
    trial_moves: Callable[[TrialObserver], None] = lambda _: None
    trial_ends: Callable[[TrialRecord], None] = lambda _: None


def measure_plan(
    plan: Plan,
    journal: Journal,
    launcher: Launcher,
    pythons: Mapping[str, str],
    listener: RunListener,
    retry_failed: bool = False,
    missing: Mapping[str, str] | None = None,
) -> None:
    """Run every trial that is not in the journal yet. An interruption loses the trial under way, and nothing else.

    ``missing`` are frameworks that cannot be had here, with the reasons: their points become rows that say so.
    """
    missing = missing or {}
    again = {record.trial.key for record in journal.records if _try_again(record, retry_failed, missing)}
    _note_missing(plan, journal, missing)
    plan = without(plan, missing)
    while (step := next_trial(plan, [r for r in journal.records if r.trial.key not in again])) is not None:
        listener.trial_begins(step)
        record = run_trial(
            step.trial, step.measure, plan, launcher, pythons, logs=journal.logs, watch=listener.trial_moves
        )
        journal.append(record)
        again.discard(record.trial.key)
        listener.trial_ends(record)


def without(plan: Plan, frameworks: Container[str]) -> Plan:
    """The same plan for the other frameworks."""
    kept = [pair for pair in zip(plan.configs, plan.ladders, strict=True) if pair[0].framework not in frameworks]
    return replace(plan, configs=tuple(c for c, _ in kept), ladders=tuple(ladder for _, ladder in kept))


def _try_again(record: TrialRecord, retry_failed: bool, missing: Container[str]) -> bool:
    """A framework that was missing and is there now is tried without being asked."""
    if record.status == MISSING:
        return record.trial.config.framework not in missing
    return retry_failed and not record.ok


def _note_missing(plan: Plan, journal: Journal, missing: Mapping[str, str]) -> None:
    known = {record.trial.key for record in journal.records}
    for config, devices in plan.points:
        trial = Trial(config, devices, repeat=0)
        if config.framework in missing and trial.key not in known:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            failure = Failure(MISSING, missing[config.framework])
            hosts = count_hosts(config, devices, plan.available)
            journal.append(TrialRecord(trial, MISSING, now, 0.0, hosts=hosts, failure=failure))


def spec_of(plan: Plan) -> dict[str, Any]:
    """What makes two commands the same run: the configs and ladders they come to, and how those are measured.

    Spelling does not matter, nor do the limits that only decide when to give up: a run may be continued with more
    patience.
    """
    work, measurement = plan.experiment.work, plan.experiment.measurement
    often = {"budget": measurement.budget} if measurement.budget is not None else {"repeats": measurement.repeats}
    interface = plan.experiment.cluster.interface
    return {
        "series": [
            {**config.to_dict(), "ladder": list(counts)}
            for config, counts in zip(plan.configs, plan.ladders, strict=True)
        ],
        "warmup": measurement.warmup,
        "steps": measurement.steps,
        "seed": work.seed,
        **({"max_batch": work.max_batch} if work.max_batch is not None else {}),
        **({"hosts": plan.available.devices_per_host} if len(plan.available.hosts) > 1 else {}),
        # Over another network the same ladder is another measurement.
        **({"interface": interface} if len(plan.available.hosts) > 1 and interface else {}),
        **often,
    }
