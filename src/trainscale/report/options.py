"""What a person may choose about a report."""

from dataclasses import dataclass

from ..analyse.series import Series
from ..analyse.throughput import Price
from ..errors import explain_unknown

# How the charts show a published curve together with a run.
SPEEDUP, PER_DEVICE, ABSOLUTE = NORMALISATIONS = ("speedup", "per-device", "absolute")
SVG, PNG, PDF = "svg", "png", "pdf"
FORMATS = (PNG, PDF, SVG)  # of charts as files


@dataclass(frozen=True)
class Overlay:
    """Published curves that are drawn with the series of runs.

    All charts of speed-up and efficiency have them. ABSOLUTE shows them in the chart of throughput
    too; PER_DEVICE makes that chart one of the throughput of a device. ``sentences`` have a
    citation and its address.
    """

    series: tuple[Series, ...] = ()
    sentences: tuple[tuple[str, str, str], ...] = ()
    normalise: str = SPEEDUP


@dataclass(frozen=True)
class ReportOptions:
    """``formats`` are those in which every chart becomes a file."""

    show_hosts: bool = False
    price: Price | None = None
    formats: tuple[str, ...] = ()
    overlay: Overlay = Overlay()


def read_formats(text: str, where: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names or [text]:
        if name not in FORMATS:
            raise explain_unknown("format", name, FORMATS, where)
    return tuple(dict.fromkeys(names))
