"""How answers about runs show themselves in a notebook. The sentences and tables are those of the commands."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.best.choose import BestOfWork
from ..analyse.best.criteria import Question
from ..report import best as best_report
from ..report.notebook_display import render_grid, render_heading, render_items, render_paragraph


def render_best(all_best: Sequence[BestOfWork], question: Question) -> str:
    blocks = []
    for best in all_best:
        grid = best_report.make_best_grid(best, question)
        items = render_items(best_report.list_sentences(best, question))
        blocks.append(f"{render_heading(best.title, 4)}{render_grid(grid) if grid.rows else ''}{items}")
    return "".join([*blocks, render_paragraph(best_report.explain_numbers(question))])
