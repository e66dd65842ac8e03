"""report.md: the tables of a run as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analyse.series import Series, common_unit
from ..record.run import RunInfo
from . import learning_tables, provenance_tables, wording
from .grid import Grid, escape, markdown
from .table import scaling_grid

_EXPLANATION = (
    "{unit}/s is of the whole cluster unless it says per device. ± is half a 95 % interval over repeats; efficiency is"
    " speed-up / devices."
)


def report_md(
    run: RunInfo, all_series: Sequence[Series], title: str, summary: Sequence[str], searches: Sequence[Grid] = ()
) -> str:
    """Return the document. ``title`` and ``summary`` are those of report.html; ``searches`` are tables of races."""
    blocks = [*_blocks(run, all_series, title, summary)]
    return "\n".join([*blocks, *(f"## {escape(grid.title)}\n\n{markdown(grid)}" for grid in searches)])


def _blocks(run: RunInfo, all_series: Sequence[Series], title: str, summary: Sequence[str]) -> Iterator[str]:
    yield f"# {escape(title)}\n"
    if summary:
        yield escape(" · ".join(summary)) + "\n"
    for series in all_series:
        yield f"- **{escape(series.title)}**: {escape(wording.headline(series))}"
    if all_series:
        yield f"\n## Every point\n\n{_EXPLANATION.format(unit=common_unit(all_series))}\n"
    for series in all_series:
        yield f"### {escape(series.title)}\n\n{escape(' · '.join(wording.traits(series)))}\n"
        yield markdown(scaling_grid(series))
        yield from (f"- {points}: {escape(flag)}" for points, flag in wording.grouped_flags(series))
        yield ""
    if any(series.learns for series in all_series):
        yield from _section("System performance", learning_tables.system_grids(run, all_series))
        yield from _section("By device count", learning_tables.device_grids(all_series))
        yield from _section("Every epoch", learning_tables.epoch_grids(all_series))
    for grid in (provenance_tables.machines_grid(run), provenance_tables.datasets_grid(run, all_series)):
        if grid:
            yield f"## {grid.title}\n\n{markdown(grid)}"


def _section(heading: str, grids: Sequence[Grid]) -> Iterator[str]:
    yield f"## {heading}\n"
    for grid in grids:
        yield f"### {escape(grid.title)}\n\n{markdown(grid)}"
