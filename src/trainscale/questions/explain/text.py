"""An explanation for people and programs: text of 100 columns, Markdown, HTML of a notebook, JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ...report import table
from ...report.numbers import THIN
from ...report.table import Grid, escape
from ...report.wording import format_device_count
from ...worker.type_aliases import JsonObject
from .causes import format_limits, round_to_percents
from .explain import PointExplanation
from .wording import describe_verdict, format_milliseconds, list_notes

COLUMNS = 100
_BAR = 30  # characters of 100 %
_MEASURES = "This command measures what is missing:"


def render_text(points: Sequence[PointExplanation], command: str) -> str:
    """Return the explanation of a run. ``command`` measures what is missing."""
    return "\n".join(_list_lines(points, command)) + "\n"


def _list_lines(points: Sequence[PointExplanation], command: str) -> Iterator[str]:
    title = None
    for point in points:
        if point.title != title:
            yield from (() if title is None else ("",))
            title = point.title
            yield title
        yield f"  {_describe_point(point)}"
        width = max(len(part.part) for part in point.parts)
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
            start = f"    {part.part:<{width}} {percentage:>4}{THIN}%  {format_limits(part):>12}  "
            bar = "█" * round(part.share * min(_BAR, COLUMNS - len(start)))
            yield f"{start}{bar}".rstrip()
        for text in (f"{describe_verdict(point)}.", *(f"note: {note}" for note in list_notes(point))):
            yield from textwrap.wrap(
                text,
                COLUMNS,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    if any(point.missing for point in points):
        yield from ("", _MEASURES, f"  {command}")


def _describe_point(point: PointExplanation) -> str:
    hosts = f" on {point.hosts} hosts" if point.hosts > 1 else ""
    repeats = f"{point.repeats} repeat{'s' if point.repeats != 1 else ''}"
    return f"{point.devices} devices{hosts}, {repeats}, {format_milliseconds(point.step_seconds)} a step"


def _make_grid(point: PointExplanation) -> Grid:
    rows = tuple(
        (part.part, f"{percentage}{THIN}%", format_limits(part), f"{part.seconds * 1000:.2f}")
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True)
    )
    return Grid(point.title, ("part", "share", "interval", "ms of a step"), rows)


def render_markdown(points: Sequence[PointExplanation], command: str) -> str:
    blocks, title = [], None
    for point in points:
        if point.title != title:
            title = point.title
            blocks.append(f"## {escape(title)}\n")
        blocks.append(f"### {_describe_point(point)}\n\n{table.render_markdown(_make_grid(point))}")
        blocks.append(escape(describe_verdict(point)) + ".\n")
        blocks += [f"- {escape(note)}" for note in list_notes(point)]
    if any(point.missing for point in points):
        blocks.append(f"\n{_MEASURES}\n\n    {command}")
    return "\n".join(blocks)


def render_html(points: Sequence[PointExplanation]) -> str:
    from ...report.notebook_display import render_grid, render_heading, render_items, render_paragraph

    blocks = []
    for point in points:
        blocks += [
            render_heading(f"{point.title} · {format_device_count(point.devices)}", 4),
            render_paragraph(f"{describe_verdict(point)}."),
            render_grid(_make_grid(point)),
            render_items(list_notes(point)),
        ]
    return "".join(blocks)


def render_json(points: Sequence[PointExplanation], command: str) -> str:
    missing = command if any(point.missing for point in points) else None
    document = {"schema": 1, "points": [_encode_point(point) for point in points], "command_for_missing": missing}
    return json.dumps(document, indent=2, allow_nan=False)


def _encode_point(point: PointExplanation) -> JsonObject:
    exchange = point.exchange
    return {
        **asdict(point),
        "config": point.config.to_dict(),
        "main": list(point.main.causes) if point.main else None,
        "parts": [
            {name: value for name, value in asdict(part).items() if name not in ("series", "devices", "part")}
            for part in point.parts
        ],
        "exchange": None
        if exchange is None
        else {**asdict(exchange), "alone_seconds": exchange.alone_seconds, "hidden_seconds": exchange.hidden_seconds},
        "sentence": describe_verdict(point),
        "notes": list_notes(point),
    }
