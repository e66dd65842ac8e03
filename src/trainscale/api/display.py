"""How objects show themselves in a notebook: HTML tables, and charts of Altair. The contents come from report/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..analyse.series import Series
from ..errors import InputError, explain_unknown
from ..export.stored_run import StoredRun
from ..report import wording
from ..report.grid import Grid
from ..report.table import scaling_grid

if TYPE_CHECKING:
    import altair

QUANTITIES = ("speedup", "throughput", "efficiency", "accuracy")
_LONG = 30  # letters of a cell that is read as a sentence


def make_chart(all_series: Sequence[Series], quantity: str) -> altair.LayerChart:
    """Return the chart of the report as an object of Altair."""
    if quantity not in QUANTITIES:
        raise explain_unknown("chart", quantity, QUANTITIES)
    if quantity == "accuracy" and not any(series.learns for series in all_series):
        raise InputError("there is no chart of accuracy: nothing was trained to an accuracy (see --epochs)")
    import altair

    from ..report import charts
    from ..report.accuracy_charts import accuracy_chart
    from ..report.drawing import on_paper

    functions = {
        "speedup": charts.speedup_chart,
        "throughput": charts.throughput_chart,
        "efficiency": charts.efficiency_chart,
        "accuracy": accuracy_chart,
    }
    return altair.LayerChart.from_dict(on_paper(functions[quantity](all_series)))


def run_html(stored: StoredRun) -> str:
    summary = " · ".join(wording.summary(stored.info, stored.series))
    blocks = [heading(wording.title(stored.series), 3), paragraph(summary), *map(series_html, stored.series)]
    return "".join(blocks)


def series_html(series: Series) -> str:
    flags = [f"{points}: {flag}" for points, flag in wording.grouped_flags(series)]
    sentence = paragraph(f"{wording.headline(series)}.")
    return f"{heading(series.title, 4)}{sentence}{grid_html(scaling_grid(series))}{items_html(flags)}"


def heading(text: str, level: int) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def items_html(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def grid_html(grid: Grid) -> str:
    """Return the table without its title."""
    head = "".join(_cell("th", text, index in grid.left) for index, text in enumerate(grid.header))
    rows = [
        f"<tr>{''.join(_cell('td', text, index in grid.left) for index, text in enumerate(row))}</tr>"
        for row in grid.rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{paragraph(grid.note)}"


def _cell(tag: str, text: str, is_text: bool) -> str:
    align = "left" if is_text else "right"
    width = "; min-width: 16em" if is_text and len(text) > _LONG else ""  # a reason would be a column of single words
    return f'<{tag} style="text-align: {align}{width}">{escape(text)}</{tag}>'
