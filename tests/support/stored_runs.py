"""Directories of runs with made-up records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from factories import curve, make_config, make_run

from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord

ALLREDUCE, SERVERS = make_config(), make_config(strategy="ps", servers=1)


def write_run(directory: Path, records: Sequence[TrialRecord], info: RunInfo | None = None) -> Path:
    with open_journal(directory, info or make_run()) as journal:
        for record in records:
            journal.append(record)
    return directory


def with_energy(record: TrialRecord, joules: float) -> TrialRecord:
    """Return the record with this energy of every rank."""
    ranks = (replace(rank, energy_joules=joules, energy_source="nvml") for rank in record.ranks)
    return replace(record, ranks=tuple(ranks))


def two_series() -> list[TrialRecord]:
    """All-reduce on 1, 2 and 4 devices; parameter servers, which fail on 4."""
    speeds: dict[int, float | None] = {1: 100.0, 2: 150.0, 4: None}
    return curve(ALLREDUCE, {1: 100, 2: 190, 4: 300}, 3, 0.01) + curve(SERVERS, speeds, 3, 0.01)
