"""Published curves in the report of a run: the chart of throughput, and a sentence on what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analyse.published.overlay import OverlaidCurve, PublishedOverlay
from ..analyse.published.own_work import Trait
from ..analyse.series import Series
from ..published.flags import SENTENCES
from ..published.selection import ABSOLUTE, PER_DEVICE
from ..published.table import PREFIX
from . import charts, wording
from .drawing import Frame, VegaSpec
from .table import escape


@dataclass(frozen=True)
class OverlaySentence:
    """What differs between a published curve and the run, with its source."""

    sentence: str
    citation: str
    url: str


def draw_throughput(all_series: Sequence[Series], overlay: PublishedOverlay, frame: Frame | None = None) -> VegaSpec:
    """Return the chart of throughput with the published curves, if the reader wants them in it."""
    if overlay.curves and overlay.normalise == PER_DEVICE:
        return charts.draw_throughput_per_device([*all_series, *overlay.series], frame)
    shown = [*all_series, *overlay.series] if overlay.normalise == ABSOLUTE else all_series
    return charts.draw_throughput(shown, frame)


def list_overlay_sentences(overlay: PublishedOverlay) -> list[OverlaySentence]:
    return [
        OverlaySentence(_describe_curve(laid), laid.curve.source.citation, laid.curve.source.url)
        for laid in overlay.curves
    ]


def render_overlay_markdown(overlay: PublishedOverlay) -> str:
    """Return the section of report.md. Empty without published curves."""
    lines = [
        f"- {escape(line.sentence)} [{escape(line.citation)}]({line.url})" for line in list_overlay_sentences(overlay)
    ]
    return "\n".join(["\n## Beside published curves\n", *lines, ""]) if lines else ""


def join_traits(traits: Sequence[Trait]) -> str:
    """Return what differs: ``hardware: P100 (DGX-1), not H200; batch per device: 64, not 32``."""
    return "; ".join(f"{trait.name}: {trait.published}, not {trait.own}" for trait in traits)


def _describe_curve(laid: OverlaidCurve) -> str:
    own = laid.own.title if laid.own else "the run"
    difference = (
        f"differs from {own} in {join_traits(laid.traits)}"
        if laid.traits
        else f"differs from {own} in nothing that its source states"
    )
    baseline = laid.curve.baseline.devices
    parts = [f"{PREFIX}{laid.curve.id} {difference}.", "It has no intervals."]
    if baseline > 1:
        parts.append(f"It begins at {wording.format_device_count(baseline)}, so it has no speed-up over 1 device.")
    parts += [f"Flag: {SENTENCES[flag]}." for flag in laid.curve.flags]
    return " ".join(parts)
