"""Charts as the page holds them: a static picture, and the spec that the embedded Vega draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from .. import drawing
from ..drawing import Frame, VegaSpec
from ..drawing_process import ChartsUnavailable

# The CSS classes of the figures. A wide chart would be cut or unreadable on a phone, so the page has a narrow one
# too, and shows the one that fits.
WIDE, HALF, NARROW = "wide", "half", "narrow"
FRAMES = {WIDE: Frame(960, 430), HALF: Frame(430, 320), NARROW: Frame(310, 270)}


@dataclass(frozen=True)
class Chart:
    """A chart in the page. ``static`` is the SVG that is shown until, or instead of, the interactive one."""

    name: str
    static: Markup
    spec: Markup
    size: str  # WIDE, HALF or NARROW
    title: str


@dataclass(frozen=True)
class NamedChart:
    """A chart that can be drawn at any size: in the page, and in files of its name."""

    name: str
    draw: Callable[[Frame], VegaSpec]


def make_chart(name: str, draw: Callable[[Frame], VegaSpec], size: str = HALF) -> Chart:
    spec = draw(FRAMES[size])
    # "<" is the only character that could end the script element which carries the JSON.
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Chart(name, _draw_picture(spec), Markup(text), size, spec["title"]["text"])


def _draw_picture(spec: VegaSpec) -> Markup:
    """Return the static picture, or a sentence in its place where pictures cannot be drawn."""
    try:
        return Markup(drawing.to_svg(spec, standalone=False))
    except ChartsUnavailable as error:
        return Markup("<p>There is no picture of this chart: {}.</p>").format(str(error))


def make_wide_and_narrow(chart: NamedChart) -> list[Chart]:
    return [make_chart(chart.name, chart.draw, WIDE), make_chart(f"{chart.name}-narrow", chart.draw, NARROW)]
