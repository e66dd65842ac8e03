"""A notebook that draws the analysis of a run again, through the Python interface. It holds no results of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ..worker.type_aliases import JsonObject

CODE, TEXT = "code", "markdown"
_BEGIN = """\
import altair
import trainscale as ts

# Pictures need no network. With "html" charts show their numbers under the mouse, and the browser loads scripts.
altair.renderers.enable("svg")
run = ts.load({directory!r})
run"""
_UNEXPLAINED = "This run has no point that can be explained: it needs synchronous training on several devices."
_FAILED = "[(point.series, point.devices, point.status, point.reason) for point in run.points if not point.ok]"
_MEANS = """\
good = trials[trials.status == "ok"]
good.groupby(["series", "devices"]).samples_per_second.agg(["count", "mean", "std"])"""


@dataclass(frozen=True)
class Cell:
    """``kind`` is CODE or TEXT."""

    kind: str
    source: str


def make_analysis_cells(directory: str, title: str, can_explain: bool, learns: bool) -> list[Cell]:
    """Return the cells for the run in ``directory``, a path that is relative to the notebook's folder."""
    charts = ["speedup", "throughput", "efficiency", *(["accuracy"] if learns else [])]
    return [
        Cell(TEXT, f"# {title}\n\nEverything below is computed from the journal of the run when a cell is executed."),
        Cell(CODE, _BEGIN.format(directory=directory)),
        Cell(TEXT, "## Charts"),
        *(Cell(CODE, f'run.chart("{name}")') for name in charts),
        Cell(TEXT, "## Where the efficiency went"),
        Cell(CODE, "ts.explain(run)") if can_explain else Cell(TEXT, _UNEXPLAINED),
        Cell(TEXT, "## The best configuration of every device count"),
        Cell(CODE, "ts.best(run)"),
        Cell(TEXT, "## What failed"),
        Cell(CODE, _FAILED),
        Cell(TEXT, "## Every trial\n\nThe columns are described in docs/export.md. This needs `pip install pandas`."),
        Cell(CODE, "trials = run.to_pandas()\ntrials"),
        Cell(CODE, _MEANS),
        Cell(TEXT, "## Where it was measured"),
        Cell(CODE, "run.provenance"),
    ]


def render_notebook_json(cells: Sequence[Cell]) -> str:
    """Return the notebook in Jupyter's format 4.5."""
    document = {
        "cells": [_encode_cell(cell, number) for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _encode_cell(cell: Cell, number: int) -> JsonObject:
    outputs: JsonObject = {"execution_count": None, "outputs": []} if cell.kind == CODE else {}
    lines = cell.source.splitlines(keepends=True)
    return {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines, **outputs}
