"""How runs and series show themselves in a notebook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analyse.series import Series
from ..errors import InputError, explain_unknown
from . import wording
from .documents import escape, make_scaling_grid

if TYPE_CHECKING:
    import altair

    from ..runs import Run


def make_chart(all_series: Sequence[Series], quantity: str) -> altair.LayerChart:
    import altair

    from . import charts
    from .drawing import INK, PAPER_INK

    functions = {
        "speedup": charts.draw_speedup,
        "throughput": charts.draw_throughput,
        "efficiency": charts.draw_efficiency,
        "accuracy": charts.draw_accuracy,
    }
    if quantity not in functions:
        raise explain_unknown("chart", quantity, functions)
    if quantity == "accuracy" and not any(series.learns for series in all_series):
        raise InputError("there is no chart of accuracy: nothing was trained to an accuracy (see --epochs)")
    # Dark on white, because the colours of the page around it are not known.
    text = json.dumps(functions[quantity](all_series)).replace(json.dumps(INK), json.dumps(PAPER_INK))
    spec = json.loads(text)
    spec["config"]["background"] = "white"
    return altair.LayerChart.from_dict(spec)


def render_run(run: Run) -> str:
    summary = " · ".join(wording.list_parts("summary", [run], run.series))
    head = f"### {escape(wording.make_title(run.series))}\n\n{escape(summary)}\n"
    return "\n".join([head, *map(render_series, run.series)])


def render_series(series: Series) -> str:
    head = f"#### {escape(series.title)}\n\n{escape(series.headline)}.\n"
    flags = [f"- {points}: {escape(flag)}" for points, flag in wording.group_flags(series)]
    return "\n".join([head, make_scaling_grid(series).to_markdown(), *flags, ""])
