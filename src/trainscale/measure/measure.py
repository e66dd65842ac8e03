"""Measures a plan: takes the next trial, runs it, and appends it to the journal, until no trial remains.

``measure_plan`` is the story of trainscale in one function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from ..analyse.witness import apply_verdict
from ..launch.trial.state import TrialState
from ..record.journal import Journal
from ..record.trial import MISSING, Failure, TrialRecord
from ..spec.config import Trial
from ..spec.placement import count_hosts
from .context import RunContext
from .expectations import Expectations
from .order import NextTrial, choose_next_trial
from .search import skip_for_memory
from .trial import run_trial


@dataclass
class RunListener:
    """Functions that are called while a run goes on, for its display."""

    trial_begins: Callable[[NextTrial], None] = lambda _: None
    trial_moves: Callable[[TrialState], None] = lambda _: None
    trial_ends: Callable[[TrialRecord], None] = lambda _: None
    expectation_begins: Callable[[str], None] = lambda _: None  # gets a line that says what is computed


def measure_plan(context: RunContext, journal: Journal, listener: RunListener) -> None:
    """Run every trial that the journal does not hold yet. An interruption loses only the trial under way."""
    to_repeat = {record.trial.key for record in journal.records if _is_to_repeat(record, context)}
    _record_missing(context, journal)
    plan = context.usable_plan
    expectations = Expectations(context, listener.expectation_begins)
    while (step := choose_next_trial(plan, [r for r in journal.records if r.trial.key not in to_repeat])) is not None:
        listener.trial_begins(step)
        skipped = skip_for_memory(plan, step.trial, journal.records)
        if skipped:
            journal.append(skipped)
            to_repeat.discard(skipped.trial.key)
            listener.trial_ends(skipped)
            continue
        expectation = expectations.find(step.trial)
        has_witness = not isinstance(expectation, str)
        record = run_trial(context, step.trial, step.measure, listener.trial_moves, witness=has_witness)
        record = apply_verdict(record, expectation)
        journal.append(record)
        to_repeat.discard(record.trial.key)
        listener.trial_ends(record)


def _is_to_repeat(record: TrialRecord, context: RunContext) -> bool:
    """A framework that was missing and is there now is tried without --retry-failed."""
    if record.status == MISSING:
        return record.trial.config.framework not in context.missing
    return context.retry_failed and not record.ok


def _record_missing(context: RunContext, journal: Journal) -> None:
    """Append a record with the reason for every point whose framework is missing."""
    recorded = {record.trial.key for record in journal.records}
    for config, devices in context.plan.points:
        trial = Trial(config, devices, repeat=0)
        if config.framework in context.missing and trial.key not in recorded:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            failure = Failure(MISSING, context.missing[config.framework])
            hosts = count_hosts(config, devices, context.plan.available)
            journal.append(TrialRecord(trial, MISSING, now, 0.0, hosts=hosts, failure=failure))
