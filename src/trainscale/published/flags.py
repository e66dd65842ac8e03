"""What in a published curve cannot be, or is not what its source calls it. Both follow from its own columns."""

from __future__ import annotations

from collections.abc import Sequence

from .curve import PublishedPoint, compute_efficiency

WEAK, STRONG, MIXED = "weak", "strong", "mixed"

# A little above 100 % is rounding or a slow baseline; beyond this the baseline was measured in another way.
HIGHEST_EFFICIENCY = 1.15
_TOLERANCE = 0.02  # of batches that a source rounds

ABOVE_115 = "above-115-percent"
WEAK_LABELLED_STRONG = "weak-labelled-strong"
MIXED_BATCHES = "mixed-batches"

SENTENCES = {
    ABOVE_115: "an efficiency above 115\u202f% cannot be: the baseline was measured otherwise, or a figure is wrong",
    WEAK_LABELLED_STRONG: "the source calls it strong scaling, but its batch per device is constant: it is weak",
    MIXED_BATCHES: "neither the batch per device nor the global batch is constant, so the points are not the same work",
}


def find_scaling(points: Sequence[PublishedPoint]) -> str | None:
    """Return weak, strong or mixed by the batches of the points. None where a batch is not stated."""
    per_device = [point.batch_per_device for point in points]
    in_all = [point.global_batch for point in points]
    if None in per_device or None in in_all:
        return None
    if _is_constant([batch for batch in per_device if batch is not None]):
        return WEAK
    return STRONG if _is_constant([float(batch) for batch in in_all if batch is not None]) else MIXED


def find_flags(points: Sequence[PublishedPoint], stated_scaling: str | None) -> tuple[str, ...]:
    """Return the flags of a curve, by its points and by what its source calls them."""
    flags = []
    if any(is_impossible(point, points[0]) for point in points):
        flags.append(ABOVE_115)
    if find_scaling(points) == WEAK and stated_scaling == STRONG:
        flags.append(WEAK_LABELLED_STRONG)
    if find_scaling(points) == MIXED:
        flags.append(MIXED_BATCHES)
    return tuple(flags)


def is_impossible(point: PublishedPoint, baseline: PublishedPoint) -> bool:
    return compute_efficiency(point, baseline) > HIGHEST_EFFICIENCY


def _is_constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _TOLERANCE * max(values)
