"""report.md: the tables of runs as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analyse.series import find_common_unit
from ..runs import Run
from . import learning_tables, wording
from .details import PageDetails
from .options import Overlay
from .provenance_tables import (
    list_difference_sentences,
    make_datasets_grid,
    make_difference_grid,
    make_machines_grid,
)
from .table import escape, make_scaling_grid, render_markdown

_EXPLANATION = (
    "{unit}/s is of the whole cluster unless it says per device. ± is half a 95 % interval over repeats; efficiency is"
    " speed-up / devices."
)


def render_report_md(runs: Sequence[Run], overlay: Overlay | None = None, details: PageDetails | None = None) -> str:
    """Return the document. Title, summary and verdicts are those of report.html."""
    return "\n".join(_render_blocks(runs, overlay or Overlay(), details or PageDetails()))


def _render_blocks(runs: Sequence[Run], overlay: Overlay, details: PageDetails) -> Iterator[str]:
    all_series = [series for run in runs for series in run.series]
    yield f"# {escape(wording.make_title(all_series))}\n"
    if summary := wording.list_summary_parts(runs, all_series):
        yield escape(" · ".join(summary)) + "\n"
    for series in all_series:
        yield f"- **{escape(series.title)}**: {escape(series.headline)}"
    for finding in details.findings:
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
        sections = {
            "System performance": [grid for run in runs for grid in learning_tables.make_system_grids(run)],
            "By device count": learning_tables.make_device_grids(all_series),
            "Every epoch": learning_tables.make_epoch_grids(all_series),
        }
        for heading, grids in sections.items():
            yield f"## {heading}\n"
            yield from (f"### {escape(grid.title)}\n\n{render_markdown(grid)}" for grid in grids)
    for run in runs:
        for own in (make_machines_grid(run.info), make_datasets_grid(run.info, run.series)):
            if own:
                yield f"## {escape(run.add_label(own.title))}\n\n{render_markdown(own)}"
    yield from (f"## {escape(grid.title)}\n\n{render_markdown(grid)}" for grid in details.searches)
    if overlay.sentences:
        lines = [f"- {escape(line.sentence)} [{escape(line.citation)}]({line.url})" for line in overlay.sentences]
        yield "\n".join(["## Beside published curves\n", *lines, ""])
