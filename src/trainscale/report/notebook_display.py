"""How objects show themselves in a notebook: HTML tables, and charts of Altair."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..analyse.series import Series
from ..errors import InputError, explain_unknown
from . import wording
from .table import Grid, make_scaling_grid

if TYPE_CHECKING:
    import altair

    from ..runs import Run

QUANTITIES = ("speedup", "throughput", "efficiency", "accuracy")
_LONG = 30  # letters of a cell that is read as a sentence


def make_chart(all_series: Sequence[Series], quantity: str) -> altair.LayerChart:
    """Return the chart of the report as an object of Altair."""
    if quantity not in QUANTITIES:
        raise explain_unknown("chart", quantity, QUANTITIES)
    if quantity == "accuracy" and not any(series.learns for series in all_series):
        raise InputError("there is no chart of accuracy: nothing was trained to an accuracy (see --epochs)")
    import altair

    from . import charts
    from .drawing import INK, PAPER_INK

    functions = {
        "speedup": charts.draw_speedup,
        "throughput": charts.draw_throughput,
        "efficiency": charts.draw_efficiency,
        "accuracy": charts.draw_accuracy,
    }
    # Dark on white, because the colours of the page around it are not known.
    text = json.dumps(functions[quantity](all_series)).replace(json.dumps(INK), json.dumps(PAPER_INK))
    spec = json.loads(text)
    spec["config"]["background"] = "white"
    return altair.LayerChart.from_dict(spec)


def render_run(run: Run) -> str:
    summary = render_paragraph(" · ".join(wording.list_summary_parts([run], run.series)))
    heading = render_heading(wording.make_title(run.series), 3)
    return "".join([heading, summary, *map(render_series, run.series)])


def render_series(series: Series) -> str:
    flags = [f"{points}: {flag}" for points, flag in wording.group_flags(series)]
    sentence = render_paragraph(f"{series.headline}.")
    return f"{render_heading(series.title, 4)}{sentence}{render_grid(make_scaling_grid(series))}{render_items(flags)}"


def render_heading(text: str, level: int) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def render_paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def render_items(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def render_grid(grid: Grid) -> str:
    """Return the table without its title."""
    head = "".join(_render_cell("th", text, index in grid.left) for index, text in enumerate(grid.header))
    rows = [
        f"<tr>{''.join(_render_cell('td', text, index in grid.left) for index, text in enumerate(row))}</tr>"
        for row in grid.rows
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{render_paragraph(grid.note)}"


def _render_cell(tag: str, text: str, is_text: bool) -> str:
    align = "left" if is_text else "right"
    width = "; min-width: 16em" if is_text and len(text) > _LONG else ""  # a reason would be a column of single words
    return f'<{tag} style="text-align: {align}{width}">{escape(text)}</{tag}>'
