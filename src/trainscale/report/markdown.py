"""report.md: the tables of runs as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analyse.series import find_common_unit
from . import learning_tables, provenance_tables, wording
from .overlay import Overlay
from .page.verdict import Finding
from .reported_run import ReportedRun, make_system_tables, summarise
from .run_differences import list_difference_sentences, make_difference_grid
from .table import Grid, escape, make_scaling_grid, render_markdown

_EXPLANATION = (
    "{unit}/s is of the whole cluster unless it says per device. ± is half a 95 % interval over repeats; efficiency is"
    " speed-up / devices."
)


def render_report_md(
    runs: Sequence[ReportedRun], overlay: Overlay | None = None, findings: Sequence[Finding] = ()
) -> str:
    """Return the document. Title, summary and verdicts are those of report.html."""
    grids = [grid for run in runs for grid in run.searches]
    blocks = [
        *_render_blocks(runs, findings),
        *(f"## {escape(grid.title)}\n\n{render_markdown(grid)}" for grid in grids),
    ]
    return "\n".join(blocks) + (overlay or Overlay()).render_markdown()


def _render_blocks(runs: Sequence[ReportedRun], findings: Sequence[Finding]) -> Iterator[str]:
    all_series = [series for run in runs for series in run.shown]
    yield f"# {escape(wording.make_title(all_series))}\n"
    if summary := summarise(runs, all_series):
        yield escape(" · ".join(summary)) + "\n"
    for series in all_series:
        yield f"- **{escape(series.title)}**: {escape(wording.make_headline(series))}"
    for finding in findings:
        if finding.verdict:
            subject = f"**{escape(finding.subject)}**: " if finding.subject else ""
            yield f"\n{subject}{escape(finding.verdict)}"
    if len(runs) > 1:
        yield f"\n## What differs between the runs\n\n{escape(' '.join(list_difference_sentences(runs)))}\n"
        yield render_markdown(make_difference_grid(runs))
    if all_series:
        yield f"\n## Every point\n\n{_EXPLANATION.format(unit=find_common_unit(all_series))}\n"
    for series in all_series:
        yield f"### {escape(series.title)}\n\n{escape(' · '.join(wording.list_traits(series)))}\n"
        yield render_markdown(make_scaling_grid(series))
        yield from (f"- {points}: {escape(flag)}" for points, flag in wording.group_flags(series))
        yield ""
    if any(series.learns for series in all_series):
        yield from _render_section(
            "System performance", [grid for run in runs for grid in make_system_tables(run, run.shown)]
        )
        yield from _render_section("By device count", learning_tables.make_device_grids(all_series))
        yield from _render_section("Every epoch", learning_tables.make_epoch_grids(all_series))
    for run in runs:
        for grid in (
            provenance_tables.make_machines_grid(run.info),
            provenance_tables.make_datasets_grid(run.info, run.shown),
        ):
            if grid:
                yield f"## {escape(run.add_label(grid.title))}\n\n{render_markdown(grid)}"


def _render_section(heading: str, grids: Sequence[Grid]) -> Iterator[str]:
    yield f"## {heading}\n"
    for grid in grids:
        yield f"### {escape(grid.title)}\n\n{render_markdown(grid)}"
