"""Conducts a run: takes the next trial, has it launched, writes the journal, until nothing is left to do.

This is the story of trainscale in one function, ``conduct``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..launch.base import Launcher
from ..launch.observe import Observer
from ..launch.placement import free_ports, place
from ..launch.supervise import PortTaken, supervise
from ..record.journal import Journal
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.plan import Plan
from .order import Step, next_step

_PORT_TRIES = 3


@dataclass
class Listener:
    """What the terminal wants to know while a run goes on."""

    trial_begins: Callable[[Step], None] = lambda _: None
    trial_moves: Callable[[Observer], None] = lambda _: None
    trial_ends: Callable[[TrialRecord], None] = lambda _: None


def conduct(
    plan: Plan,
    journal: Journal,
    launcher: Launcher,
    pythons: Mapping[str, str],
    listener: Listener,
    retry_failed: bool = False,
) -> None:
    """Run every trial that is not in the journal yet. An interruption loses the trial under way, and nothing else."""
    again = {record.trial.key for record in journal.records if not record.ok} if retry_failed else set()
    while (step := next_step(plan, [r for r in journal.records if r.trial.key not in again])) is not None:
        listener.trial_begins(step)
        record = _run(step, plan, journal, launcher, pythons, listener)
        journal.append(record)
        again.discard(record.trial.key)
        listener.trial_ends(record)


def _run(
    step: Step,
    plan: Plan,
    journal: Journal,
    launcher: Launcher,
    pythons: Mapping[str, str],
    listener: Listener,
) -> TrialRecord:
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    for _ in range(_PORT_TRIES):
        port, meeting_port = free_ports(2)
        processes = place(
            step.trial,
            plan.supply.devices,
            step.measure,
            seed=plan.experiment.seed,
            pythons=pythons,
            ports=(port, meeting_port),
        )
        try:
            return supervise(
                step.trial,
                processes,
                launcher,
                timeout_seconds=plan.experiment.timeout,
                stall_seconds=plan.experiment.stall_timeout,
                logs=journal.logs,
                watch=listener.trial_moves,
            )
        except PortTaken:
            continue
    words = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    return TrialRecord(step.trial, REFUSED, started, time.monotonic() - began, failure=Failure(REFUSED, words))


def spec_of(plan: Plan) -> dict[str, Any]:
    """What makes two commands the same run: the configs and ladders they come to, and how those are measured.

    Spelling does not matter, nor do the limits that only decide when to give up: a run may be continued with more
    patience.
    """
    asked = plan.experiment
    often = {"budget": asked.budget} if asked.budget is not None else {"repeats": asked.repeats}
    return {
        "series": [
            {**config.to_dict(), "ladder": list(counts)}
            for config, counts in zip(plan.configs, plan.ladders, strict=True)
        ],
        "warmup": asked.warmup,
        "steps": asked.steps,
        "seed": asked.seed,
        **often,
    }
