"""What is wrong with a table of published curves. Scaling and flags of a curve must follow from its own figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from trainscale.questions.published.curves import (
    ABOVE_115,
    MIXED,
    MIXED_BATCHES,
    STRONG,
    WEAK,
    WEAK_LABELLED_STRONG,
    PublishedCurve,
    PublishedPoint,
    is_impossible,
)

UNITS = ("images", "samples", "sequences", "tokens")
_NEEDED = ("network_stated", "framework", "strategy", "hardware", "interconnect", "precision")
_TOLERANCE = 0.02  # of batches that a source rounds


def find_problems(curves: Sequence[PublishedCurve]) -> list[str]:
    """Return what is wrong with a table, a sentence for each problem."""
    ids = [curve.id for curve in curves]
    problems = [f"{name}: the ID is there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    return problems + [f"{curve.id}: {problem}" for curve in curves for problem in _find_curve_problems(curve)]


def _find_curve_problems(curve: PublishedCurve) -> Iterator[str]:
    source = curve.source
    if not (source.citation and source.url.startswith("https://") and 2010 <= source.year <= 2030):
        yield "the source lacks a citation, a URL or a year"
    if curve.unit not in UNITS:
        yield f"the unit {curve.unit!r} is none of {', '.join(UNITS)}"
    if missing := [name for name in _NEEDED if not getattr(curve, name)]:
        yield f"there is no {', '.join(missing)}"
    counts = [point.devices for point in curve.points]
    if len(counts) < 2 or counts[0] < 1 or any(second <= first for first, second in pairwise(counts)):
        yield f"the device counts {counts} do not increase, or there is no point beyond the baseline"
        return
    if speeds := [point for point in curve.points if (point.per_second is None) == (point.efficiency is None)]:
        yield f"{speeds[0].devices} devices: there is neither or both of a speed and an efficiency"
        return
    if any((point.per_second or point.efficiency or 0) <= 0 for point in curve.points):
        yield "a speed or an efficiency is not positive"
        return
    yield from _find_wrong_batches(curve)
    if curve.scaling != find_scaling(curve.points):
        yield f"scaling is {curve.scaling}, by the batches it is {find_scaling(curve.points)}"
    if curve.flags != find_flags(curve.points, curve.stated_scaling):
        yield f"flags are {curve.flags}, by the points they are {find_flags(curve.points, curve.stated_scaling)}"


def _find_wrong_batches(curve: PublishedCurve) -> Iterable[str]:
    for point in curve.points:
        if point.batch_per_device is not None and point.global_batch is not None:
            product = point.batch_per_device * point.devices
            if abs(product - point.global_batch) > 0.01 * point.global_batch:
                yield f"{point.devices} devices: the global batch is not that of all devices"


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


def _is_constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _TOLERANCE * max(values)
