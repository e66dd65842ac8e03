"""report.md: the tables of a run as text, for a README, an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analyse.series import Series, common_unit
from ..record.run import RunInfo
from . import learning_tables, provenance_tables, wording
from .grid import Grid, escape, markdown
from .table import scaling_grid

_POINTS = (
    "{unit}/s is of the whole cluster unless it says per device. ± is half a 95 % interval over repeats; efficiency is"
    " speed-up / devices."
)


def report_md(run: RunInfo, series: Sequence[Series], title: str, summary: Sequence[str]) -> str:
    """``title`` and ``summary`` are those of report.html."""
    return "\n".join(_blocks(run, series, title, summary))


def _blocks(run: RunInfo, series: Sequence[Series], title: str, summary: Sequence[str]) -> Iterator[str]:
    yield f"# {escape(title)}\n"
    if summary:
        yield escape(" · ".join(summary)) + "\n"
    for one in series:
        yield f"- **{escape(one.title)}**: {escape(wording.headline(one))}"
    if series:
        yield f"\n## Every point\n\n{_POINTS.format(unit=common_unit(series))}\n"
    for one in series:
        yield f"### {escape(one.title)}\n\n{escape(' · '.join(wording.traits(one)))}\n"
        yield markdown(scaling_grid(one))
        yield from (f"- {whom}: {escape(flag)}" for whom, flag in wording.grouped_flags(one))
        yield ""
    if any(one.learns for one in series):
        yield from _section("System performance", learning_tables.system_grids(run, series))
        yield from _section("By device count", learning_tables.device_grids(series))
        yield from _section("Every epoch", learning_tables.epoch_grids(series))
    for grid in (provenance_tables.machines_grid(run), provenance_tables.datasets_grid(run, series)):
        if grid:
            yield f"## {grid.title}\n\n{markdown(grid)}"


def _section(heading: str, grids: Sequence[Grid]) -> Iterator[str]:
    yield f"## {heading}\n"
    for grid in grids:
        yield f"### {escape(grid.title)}\n\n{markdown(grid)}"
