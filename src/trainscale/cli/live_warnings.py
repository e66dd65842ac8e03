"""Warnings that a finished trial gives while the run goes on. The report has them too, for whole points."""

from __future__ import annotations

from ..analyse.checks import OTHER_CORES
from ..record.decoding import find_first_line, remove_unprintable
from ..record.parity import UNPROVEN
from ..record.trial import SKIPPED, TrialRecord


def list_trial_warnings(record: TrialRecord) -> list[str]:
    """Return what a person may want to act on now: a failure, a busy machine, work that is not proven, notes."""
    warnings = []
    if not record.ok and record.status != SKIPPED:
        reason = find_first_line(record.failure.message) if record.failure else ""
        warnings.append(f"{record.trial.label}: {record.status}: {reason}".removesuffix(": "))
    cores = record.machine.other_cores or 0.0
    if record.ok and cores > OTHER_CORES:
        warnings.append(f"other programs used {cores:.1f} cores during {record.trial.label}")
    if record.ok and record.witness and record.witness.state == UNPROVEN:
        warnings.append(f"it is not proven that the trials did their work: {record.witness.reason}")
    return [*warnings, *(remove_unprintable(note) for note in record.notes)]
