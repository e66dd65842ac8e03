"""A run as a report shows it. A report of several runs tells their series apart by the label of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..analyse.race import replay_races_of_run
from ..analyse.series import Series, build_series
from ..record.run import RunInfo
from ..runs import Run
from . import learning_tables, wording
from .page.redaction import Redaction, redact_hosts
from .search_table import make_search_grids, select_series_in_full
from .table import Grid


@dataclass(frozen=True)
class LabelledRun:
    """A run as it is on the disk, with its label; in a report of one run the label is empty."""

    recorded: Run
    label: str = ""


@dataclass(frozen=True)
class ReportedRun:
    """``series`` are for programs; ``info``, ``shown`` and ``searches`` are for people: hosts may be redacted in them.

    The titles of series begin with the label, so they differ between runs. Configs may be the same in several runs.
    """

    recorded: Run
    info: RunInfo
    series: Sequence[Series]
    shown: Sequence[Series]
    searches: Sequence[Grid] = ()
    label: str = ""

    @property
    def in_full(self) -> list[Series]:
        """The series that charts and the page show; the others of a search are rows of its tables."""
        return select_series_in_full(self.shown, self.recorded.records)

    def add_label(self, title: str) -> str:
        """Return a title that begins with the label of the run."""
        return add_label(self.label, title)


def add_label(label: str, title: str) -> str:
    return f"{label} · {title}" if label else title


def make_reported_runs(
    runs: Sequence[LabelledRun], accuracy: float | None, show_hosts: bool
) -> tuple[list[ReportedRun], Redaction]:
    """Return the runs, and what redacts hosts in further texts about them. A host has the same number in all runs."""
    recorded = [run.recorded for run in runs]
    redaction = Redaction() if show_hosts else redact_hosts([(each.info, each.records) for each in recorded])
    return [_make_run(run, accuracy, redaction) for run in runs], redaction


def _make_run(run: LabelledRun, accuracy: float | None, redaction: Redaction) -> ReportedRun:
    recorded = run.recorded
    info, records, verdicts = recorded.info, recorded.records, recorded.parity
    series = label_series(run.label, build_series(records, verdicts, accuracy, info.is_sequential))
    races = replay_races_of_run(info, records, verdicts) if info.is_search else []
    grids = make_search_grids(races, records)
    return ReportedRun(
        recorded=recorded,
        info=redaction.redact_run(info),
        series=series,
        shown=redaction.redact_series(series),
        searches=[redaction.redact_grid(replace(grid, title=add_label(run.label, grid.title))) for grid in grids],
        label=run.label,
    )


def label_series(label: str, all_series: Sequence[Series]) -> list[Series]:
    return [replace(series, title=add_label(label, series.title)) for series in all_series]


def summarise(runs: Sequence[ReportedRun], all_series: Sequence[Series]) -> list[str]:
    """Return the parts of the line under the title of a report. Several runs have labels instead of a date."""
    if len(runs) == 1:
        return wording.list_summary_parts(runs[0].info, all_series)
    labels = wording.join_names(run.label for run in runs)
    return [f"{len(runs)} runs: {labels}", *wording.list_summary_parts(RunInfo({}), all_series)]


def make_system_tables(run: ReportedRun, all_series: Sequence[Series]) -> list[Grid]:
    """Return the tables of systems for series of a run that trains to an accuracy."""
    grids = learning_tables.make_system_grids(run.info, all_series)
    return [replace(grid, title=run.add_label(grid.title)) for grid in grids]
