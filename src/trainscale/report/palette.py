"""The colours and shapes of series. Each series has its own pair, because colour alone is not enough for everyone."""

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


def choose_styles(all_series: Sequence[Series]) -> list[SeriesStyle]:
    """Return the style of each series, which is the same in every chart of a run.

    If there are more series than colours, as when many frameworks train several networks, each network has a shape and
    everything else (framework, strategy) a colour. If eight colours are not enough for that, the pairs take turns.
    """
    networks = _number_names([series.config.model for series in all_series])
    ways = _number_names([series.title.partition(" · ")[2] for series in all_series])
    if len(all_series) > len(COLOURS) and len(set(ways)) <= len(COLOURS) and len(set(networks)) <= len(SHAPES):
        pairs = list(zip(ways, networks, strict=True))
        if len(set(pairs)) == len(all_series):
            return [SeriesStyle(COLOURS[way], SHAPES[network]) for way, network in pairs]
    return [SeriesStyle(choose_colour(index), choose_shape(index)) for index in range(len(all_series))]


def choose_colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def choose_shape(index: int) -> str:
    return SHAPES[index % len(SHAPES)]


def _number_names(names: Sequence[str]) -> list[int]:
    """Return a number for each name, in the order of first appearance."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
