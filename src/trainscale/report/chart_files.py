"""Charts as files: SVG, PNG at twice the size, PDF."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import explain_unknown
from .drawing import Frame, to_svg
from .drawing_process import render
from .page.figures import NamedChart

SVG, PNG, PDF = "svg", "png", "pdf"
FORMATS = (PNG, PDF, SVG)
_PNG_SCALE = 2.0  # pixels of a picture for each pixel of a chart


def read_formats(text: str, where: str) -> tuple[str, ...]:
    """Return the formats of a list such as ``png,pdf``."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in FORMATS:
            raise explain_unknown("format", name, FORMATS, where)
    if not names:
        raise explain_unknown("format", text, FORMATS, where)
    return tuple(dict.fromkeys(names))


def draw_files(charts: Sequence[NamedChart], formats: Sequence[str]) -> dict[str, str | bytes]:
    """Return the content of a file for every chart and format, by its name."""
    if not formats:
        return {}
    files: dict[str, str | bytes] = {}
    for chart in charts:
        svg = to_svg(chart.draw(Frame()), standalone=True)
        for name in formats:
            files[f"{chart.name}.{name}"] = _convert(svg, name)
    return files


def _convert(svg: str, name: str) -> str | bytes:
    if name == SVG:
        return svg
    return render(svg=svg, format=PNG, scale=_PNG_SCALE) if name == PNG else render(svg=svg, format=PDF)
