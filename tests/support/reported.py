"""Runs as a report shows them, from series that a test made."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from factories import make_run
from rich.console import Console, RenderableType

from trainscale.analyse.series import Series
from trainscale.analyse.throughput import Price
from trainscale.record.parity import Verdict
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.report.details import PageDetails, choose_charted, make_details
from trainscale.report.options import Overlay, ReportOptions
from trainscale.report.outputs import write_report
from trainscale.report.pages import render_report_html
from trainscale.report.redaction import Redaction
from trainscale.runs import Run


def render_page(
    info: RunInfo, all_series: Sequence[Series], overlay: Overlay | None = None, details: PageDetails | None = None
) -> str:
    """Return the page of one run."""
    runs = [Run.from_records(info, (), all_series=all_series)]
    return render_report_html(runs, overlay or Overlay(), details or PageDetails())


def print_to_text(table: RenderableType, width: int = 120) -> str:
    """Return what a terminal of this width shows, with plain spaces."""
    file = StringIO()
    Console(file=file, width=width, color_system=None).print(table)
    return file.getvalue().replace("\u202f", " ")


def details_of(
    records: Sequence[TrialRecord], price: Price | None = None, redaction: Redaction | None = None
) -> PageDetails:
    """Return the sections of the page of a run."""
    runs = [Run.from_records(make_run(), records)]
    return make_details(runs, choose_charted(runs), redaction or Redaction(), price)


def write_outputs(
    directory: Path,
    info: RunInfo,
    records: Sequence[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    options: ReportOptions | None = None,
) -> str:
    """Write the report of a run whose journal is in memory. Return why charts are missing."""
    return write_report(directory, [Run.from_records(info, records, verdicts)], options)
