"""An explanation for people and programs: text of 100 columns, Markdown, JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.parts import Part
from ..worker.type_aliases import JsonObject
from . import explanation_sentences as sentences
from .explanation_notes import list_notes
from .grid import Grid, escape, render_markdown
from .numbers import THIN

COLUMNS = 100
_BAR = 30  # characters of 100 %
_MEASURES = "This command measures what is missing:"
_HEADER = ("part", "share", "interval", "ms of a step")


def render_explanation_text(points: Sequence[PointExplanation], command: str) -> str:
    """Return the explanation of a run. ``command`` measures what is missing."""
    return "\n".join(_render_lines(points, command)) + "\n"


def _render_lines(points: Sequence[PointExplanation], command: str) -> Iterator[str]:
    title = None
    for point in points:
        if point.title != title:
            yield from (() if title is None else ("",))
            title = point.title
            yield title
        yield f"  {_describe_point(point)}"
        width = max(len(sentences.name_part(part)) for part in point.parts)
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
            start = f"    {sentences.name_part(part):<{width}} {percentage:>4}{THIN}%  {format_limits(part):>12}  "
            bar = "█" * round(part.share * min(_BAR, COLUMNS - len(start)))
            yield f"{start}{bar}".rstrip()
        yield from _wrap(sentences.describe_verdict(point) + ".")
        for note in list_notes(point):
            yield from _wrap(f"note: {note}")
    if any(point.missing for point in points):
        yield from ("", _MEASURES, f"  {command}")


def _describe_point(point: PointExplanation) -> str:
    hosts = f" on {point.hosts} hosts" if point.hosts > 1 else ""
    repeats = f"{point.repeats} repeat{'s' if point.repeats != 1 else ''}"
    return f"{point.devices} devices{hosts}, {repeats}, {sentences.format_milliseconds(point.step_seconds)} a step"


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def round_to_percents(parts: Sequence[Part]) -> list[int]:
    """Return whole percentages that add up to exactly 100: the largest remainders are rounded up."""
    exact = [part.share * 100 for part in parts]
    floors = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: floors[index] - exact[index])
    for index in by_remainder[: 100 - sum(floors)]:
        floors[index] += 1
    return floors


def format_limits(part: Part) -> str:
    """Return the limits of the interval of a part in per cent: «24–30». Empty where there are none."""
    low, high = part.measured.low, part.measured.high
    if low is None or high is None:
        return ""
    return f"({low * 100:.0f} … {high * 100:.0f})".replace("-", "−")


def render_explanation_markdown(points: Sequence[PointExplanation], command: str) -> str:
    blocks, title = [], None
    for point in points:
        if point.title != title:
            title = point.title
            blocks.append(f"## {escape(title)}\n")
        rows = tuple(
            (sentences.name_part(part), f"{percentage}{THIN}%", format_limits(part), f"{part.seconds * 1000:.2f}")
            for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True)
        )
        blocks.append(f"### {_describe_point(point)}\n\n{render_markdown(Grid(title, _HEADER, rows))}")
        blocks.append(escape(sentences.describe_verdict(point)) + ".\n")
        blocks += [f"- {escape(note)}" for note in list_notes(point)]
    if any(point.missing for point in points):
        blocks.append(f"\n{_MEASURES}\n\n    {command}")
    return "\n".join(blocks)


def render_explanation_json(points: Sequence[PointExplanation], command: str) -> str:
    missing = command if any(point.missing for point in points) else None
    document = {"schema": 1, "points": [_encode_point(point) for point in points], "command_for_missing": missing}
    return json.dumps(document, indent=2, allow_nan=False)


def _encode_point(point: PointExplanation) -> JsonObject:
    values = asdict(point)
    exchange = point.exchange
    return {
        **values,
        "config": point.config.to_dict(),
        "main": list(point.main.causes) if point.main else None,
        "parts": [{**asdict(part), "causes": list(part.causes)} for part in point.parts],
        "exchange": None
        if exchange is None
        else {**asdict(exchange), "alone_seconds": exchange.alone_seconds, "hidden_seconds": exchange.hidden_seconds},
        "sentence": sentences.describe_verdict(point),
        "notes": list_notes(point),
    }
