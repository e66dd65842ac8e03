"""The colours and shapes of series, in one place. Colour is never alone: each series has its own shape."""

from __future__ import annotations

# Okabe and Ito's palette for colour-blind readers, without its black (invisible on dark pages) and its yellow
# (invisible on white ones); the last two are from Paul Tol's muted scheme.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#999933", "#AA4499")

# Seven shapes against eight colours: the pairs repeat only after 56 series.
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

IDEAL = "#8A8F98"  # reads on white and on black
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # a point that failed


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def shape(index: int) -> str:
    return SHAPES[index % len(SHAPES)]
