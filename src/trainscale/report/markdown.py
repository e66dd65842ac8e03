"""report.md: the tables of runs as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analyse.published.overlay import PublishedOverlay
from ..analyse.series import find_common_unit
from . import learning_tables, provenance_tables, wording
from .grid import Grid, escape, markdown
from .page.verdict import Finding
from .published_overlay import overlay_markdown
from .reported_run import ReportedRun, summarise, system_tables
from .run_differences import difference_grid, difference_sentences
from .table import scaling_grid

_EXPLANATION = (
    "{unit}/s is of the whole cluster unless it says per device. ± is half a 95 % interval over repeats; efficiency is"
    " speed-up / devices."
)


def report_md(
    runs: Sequence[ReportedRun], overlay: PublishedOverlay | None = None, findings: Sequence[Finding] = ()
) -> str:
    """Return the document. Title, summary and verdicts are those of report.html."""
    grids = [grid for run in runs for grid in run.searches]
    blocks = [*_blocks(runs, findings), *(f"## {escape(grid.title)}\n\n{markdown(grid)}" for grid in grids)]
    return "\n".join(blocks) + overlay_markdown(overlay or PublishedOverlay())


def _blocks(runs: Sequence[ReportedRun], findings: Sequence[Finding]) -> Iterator[str]:
    all_series = [series for run in runs for series in run.shown]
    yield f"# {escape(wording.title(all_series))}\n"
    if summary := summarise(runs, all_series):
        yield escape(" · ".join(summary)) + "\n"
    for series in all_series:
        yield f"- **{escape(series.title)}**: {escape(wording.headline(series))}"
    for finding in findings:
        if finding.verdict:
            subject = f"**{escape(finding.subject)}**: " if finding.subject else ""
            yield f"\n{subject}{escape(finding.verdict)}"
    if len(runs) > 1:
        yield f"\n## What differs between the runs\n\n{escape(' '.join(difference_sentences(runs)))}\n"
        yield markdown(difference_grid(runs))
    if all_series:
        yield f"\n## Every point\n\n{_EXPLANATION.format(unit=find_common_unit(all_series))}\n"
    for series in all_series:
        yield f"### {escape(series.title)}\n\n{escape(' · '.join(wording.traits(series)))}\n"
        yield markdown(scaling_grid(series))
        yield from (f"- {points}: {escape(flag)}" for points, flag in wording.grouped_flags(series))
        yield ""
    if any(series.learns for series in all_series):
        yield from _section("System performance", [grid for run in runs for grid in system_tables(run, run.shown)])
        yield from _section("By device count", learning_tables.device_grids(all_series))
        yield from _section("Every epoch", learning_tables.epoch_grids(all_series))
    for run in runs:
        for grid in (provenance_tables.machines_grid(run.info), provenance_tables.datasets_grid(run.info, run.shown)):
            if grid:
                yield f"## {escape(run.name(grid.title))}\n\n{markdown(grid)}"


def _section(heading: str, grids: Sequence[Grid]) -> Iterator[str]:
    yield f"## {heading}\n"
    for grid in grids:
        yield f"### {escape(grid.title)}\n\n{markdown(grid)}"
