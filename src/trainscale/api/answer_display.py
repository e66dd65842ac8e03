"""How answers about runs show themselves in a notebook. The sentences and tables are those of the commands."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.best.choose import BestOfWork
from ..analyse.best.criteria import Question
from ..analyse.comparison.compare import Comparison
from ..report import best as best_report
from ..report import comparison as comparison_report
from ..report.notebook_display import render_grid, render_heading, render_items, render_paragraph


def render_best(all_best: Sequence[BestOfWork], question: Question) -> str:
    blocks = []
    for best in all_best:
        grid = best_report.make_best_grid(best, question)
        items = render_items(best_report.list_sentences(best, question))
        blocks.append(f"{render_heading(best.title, 4)}{render_grid(grid) if grid.rows else ''}{items}")
    return "".join([*blocks, render_paragraph(best_report.explain_numbers(question))])


def render_comparison(comparison: Comparison) -> str:
    blocks = [
        render_heading(comparison_report.make_headline(comparison), 3),
        render_paragraph(comparison_report.describe_gate(comparison)),
    ]
    for curve in comparison.curves:
        sides = (f"A: {comparison_report.describe_side(curve.a)}", f"B: {comparison_report.describe_side(curve.b)}")
        blocks.append(render_items(sides))
        blocks.append(render_paragraph(comparison_report.describe_curve(curve, comparison.margin)))
        blocks.append(render_grid(comparison_report.make_curve_grid(curve, comparison)))
    blocks.append(render_paragraph(comparison_report.explain_intervals(comparison)))
    return "".join([*blocks, render_items(comparison_report.list_notes(comparison))])
