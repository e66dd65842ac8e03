"""Arithmetic on sliding windows that frameworks need where their own padding differs from the graph's."""

from __future__ import annotations

from typing import Any


def count_inside(size: int, kernel: int, stride: int, padding: int) -> Any:
    """Return how many places of each window lie in the image and not in its padding, along one axis."""
    import numpy as np

    starts: Any = np.arange((size + 2 * padding - kernel) // stride + 1) * stride - padding
    return np.minimum(starts + kernel, size) - np.maximum(starts, 0)
