"""Published curves in the report of runs: which charts have them, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..analyse.series import Series

if TYPE_CHECKING:
    from .drawing import Frame, VegaSpec

# How the charts show a curve together with a run.
SPEEDUP, PER_DEVICE, ABSOLUTE = NORMALISATIONS = ("speedup", "per-device", "absolute")


@dataclass(frozen=True)
class OverlaySentence:
    """What differs between a published curve and the run, with its source."""

    sentence: str
    citation: str
    url: str


@dataclass(frozen=True)
class Overlay:
    """Published curves that are drawn with the series of runs. ``normalise`` says in which charts.

    All charts of speed-up and efficiency have them, each relative to its own 1-device point. ABSOLUTE shows them in the
    chart of throughput too; PER_DEVICE replaces that chart by one of the throughput of a device.
    """

    series: tuple[Series, ...] = ()
    sentences: tuple[OverlaySentence, ...] = ()
    normalise: str = SPEEDUP

    def draw_throughput(self, all_series: Sequence[Series], frame: Frame | None = None) -> VegaSpec:
        """Return the chart of throughput with the curves, if the reader wants them in it."""
        from . import charts

        if self.series and self.normalise == PER_DEVICE:
            return charts.draw_throughput_per_device([*all_series, *self.series], frame)
        shown = [*all_series, *self.series] if self.normalise == ABSOLUTE else all_series
        return charts.draw_throughput(shown, frame)

    def render_markdown(self) -> str:
        """Return the section of report.md. Empty without curves."""
        from .table import escape

        lines = [f"- {escape(line.sentence)} [{escape(line.citation)}]({line.url})" for line in self.sentences]
        return "\n".join(["\n## Beside published curves\n", *lines, ""]) if lines else ""
