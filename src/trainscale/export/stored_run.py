"""A run as it is on the disk, with its series and the rows of its trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..analyse.series import Series, build_series
from ..record.journal import read_run, read_trials
from ..record.parity import Verdict, read_parity
from ..record.run import RunInfo
from ..record.trial import TrialRecord
from .columns import TrialRow
from .rows import make_rows


@dataclass(frozen=True)
class StoredRun:
    """Series and rows are computed when they are first used."""

    directory: Path
    info: RunInfo
    records: tuple[TrialRecord, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    @cached_property
    def series(self) -> tuple[Series, ...]:
        return tuple(build_series(self.records, self.verdicts, by_budget=self.info.is_sequential))

    @cached_property
    def rows(self) -> tuple[TrialRow, ...]:
        return tuple(make_rows(self.name, self.info, self.records, self.series))


def read_stored_run(directory: Path, skip: Callable[[str], None] | None = None) -> StoredRun:
    """Read a run's directory. An InputError says why it cannot be read. ``skip`` as in ``read_trials``."""
    info, records = read_run(directory), tuple(read_trials(directory, skip))
    return StoredRun(directory, info, records, tuple(read_parity(directory)))


def collect_rows(runs: Iterable[StoredRun]) -> tuple[TrialRow, ...]:
    return tuple(row for run in runs for row in run.rows)
