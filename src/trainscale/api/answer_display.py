"""How answers about runs show themselves in a notebook. The sentences and tables are those of the commands."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.best.choose import BestOfWork
from ..analyse.best.criteria import Question
from ..analyse.comparison.compare import Comparison
from ..analyse.explanation.explain import PointExplanation
from ..report import best as best_report
from ..report import comparison as comparison_report
from ..report import explanation_sentences as sentences
from ..report.explanation_notes import list_notes
from ..report.explanation_text import format_limits, round_to_percents
from ..report.grid import Grid
from ..report.notebook_display import render_grid, render_heading, render_items, render_paragraph
from ..report.numbers import THIN
from ..report.wording import format_device_count

_HEADER = ("part", "share", "interval", "ms of a step")


def render_explanation(points: Sequence[PointExplanation]) -> str:
    return "".join(_render_point(point) for point in points)


def _render_point(point: PointExplanation) -> str:
    rows = tuple(
        (sentences.name_part(part), f"{percentage}{THIN}%", format_limits(part), f"{part.seconds * 1000:.2f}")
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True)
    )
    title = render_heading(f"{point.title} · {format_device_count(point.devices)}", 4)
    sentence = render_paragraph(f"{sentences.describe_verdict(point)}.")
    return f"{title}{sentence}{render_grid(Grid(point.title, _HEADER, rows))}{render_items(list_notes(point))}"


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
