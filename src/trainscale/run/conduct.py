"""Conducts a run: takes the next trial, has it launched, writes the journal, until nothing is left to do.

This is the story of trainscale in one function, ``conduct``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..launch.base import Launcher
from ..launch.observe import Observer
from ..record.journal import Journal
from ..record.trial import TrialRecord
from ..spec.plan import Plan
from .order import Step, next_step
from .trial import run_trial


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
        record = run_trial(
            step.trial, step.measure, plan, launcher, pythons, logs=journal.logs, watch=listener.trial_moves
        )
        journal.append(record)
        again.discard(record.trial.key)
        listener.trial_ends(record)


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
