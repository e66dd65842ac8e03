"""The chart of a published curve as a file, drawn as the charts of a run are."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from ..analyse.published.overlay import make_curve_series
from ..published.curve import PublishedCurve
from ..record.files import write_atomically
from . import charts
from .drawing import Frame, to_svg
from .drawing_process import render

_LETTER = 6  # pixels of an average letter
_SCALE = 2.0  # pixels of a PNG per pixel of the chart, for sharp screens


def write_curve_chart(curve: PublishedCurve, path: Path) -> None:
    """Write the speed-up of a curve, or its throughput if it has no 1-device point, as an SVG or a PNG."""
    series = make_curve_series(curve)
    draw = charts.draw_speedup if series.has_baseline else charts.draw_throughput
    spec = draw([series])
    source = f"Source: {curve.source.citation}. It states no intervals."
    spec["title"]["subtitle"] = [*spec["title"]["subtitle"], *wrap(source, Frame().width // _LETTER)]
    svg = to_svg(spec, standalone=True)
    if path.suffix == ".png":
        path.write_bytes(render(svg=svg, format="png", scale=_SCALE))
    else:
        write_atomically(path, svg)
