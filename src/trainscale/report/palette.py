"""The colours and shapes of series, in one place. Colour is never alone: each series has its own pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..analyse.series import Series

# Okabe and Ito's palette for colour-blind readers, without its black (invisible on dark pages) and its yellow
# (invisible on white ones); the last two are from Paul Tol's muted scheme.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999933", "#AA4499")

# Seven shapes against eight colours: the pairs repeat only after 56 series.
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

IDEAL = "#8A8F98"  # reads on white and on black
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # a point that failed


class SeriesStyle(NamedTuple):
    colour: str
    shape: str


def styles(series: Sequence[Series]) -> list[SeriesStyle]:
    """A series has the same colour and shape in every chart of a run. Where there are more series than colours, as when
    many frameworks train several networks, a shape is a network and a colour all else: framework, strategy. If that
    would need more colours than there are, they go by turns.
    """
    networks = _numbered([one.config.model for one in series])
    ways = _numbered([one.title.partition(" · ")[2] for one in series])
    if len(series) > len(COLOURS) and len(set(ways)) <= len(COLOURS) and len(set(networks)) <= len(SHAPES):
        places = list(zip(ways, networks, strict=True))
        if len(set(places)) == len(series):
            return [SeriesStyle(COLOURS[way], SHAPES[network]) for way, network in places]
    return [SeriesStyle(colour(index), shape(index)) for index in range(len(series))]


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def shape(index: int) -> str:
    return SHAPES[index % len(SHAPES)]


def _numbered(names: Sequence[str]) -> list[int]:
    """Each name's number, in the order in which they first come."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
