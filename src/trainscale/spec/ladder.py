"""The device counts measured: 1, 2, 4, … doubling, and always the maximum itself."""

from __future__ import annotations


def ladder(most: int) -> tuple[int, ...]:
    counts = []
    n = 1
    while n < most:
        counts.append(n)
        n *= 2
    return (*counts, most)
