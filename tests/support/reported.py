"""Runs as a report shows them, from series that a test made."""

from __future__ import annotations

from collections.abc import Sequence

from trainscale.analyse.series import Series, build_series
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.report.reported_run import ReportedRun
from trainscale.runs import Run


def reported(run: RunInfo, all_series: Sequence[Series], records: Sequence[TrialRecord] = ()) -> list[ReportedRun]:
    """Return the only run of a report."""
    return [ReportedRun(Run.from_records(run, records), run, all_series, all_series)]


def reported_records(run: RunInfo, records: Sequence[TrialRecord]) -> list[ReportedRun]:
    return reported(run, build_series(records), records)
