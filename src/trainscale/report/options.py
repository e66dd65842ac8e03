"""What a person may ask of a report besides what the run holds."""

from __future__ import annotations

from dataclasses import dataclass

from ..analyse.cost import Price


@dataclass(frozen=True)
class ReportOptions:
    """``formats`` are those in which every chart becomes a file."""

    show_hosts: bool = False
    price: Price | None = None
    formats: tuple[str, ...] = ()
