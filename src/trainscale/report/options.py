"""Options of a report: what a person may choose in addition to the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..analyse.throughput import Price
from .overlay import Overlay


@dataclass(frozen=True)
class ReportOptions:
    """``formats`` are those in which every chart becomes a file; ``overlay`` are published curves for the charts."""

    show_hosts: bool = False
    price: Price | None = None
    formats: tuple[str, ...] = ()
    overlay: Overlay = field(default_factory=Overlay)
