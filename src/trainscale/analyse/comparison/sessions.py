"""Several runs of the same experiment as one side: each run is a session, and its mean counts as one repeat.

The speed of a machine drifts, so repeats of one session are more alike than those of two. Only sessions that alternate
with those of the other side show how much of a difference is drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import InputError
from ...record.witness import PROVEN, REFUTED, UNPROVEN
from ..estimates import make_estimate
from ..statistics import mean_interval
from .differences import find_differences, list_names
from .sides import UNCHECKED, Side, SidePoint


def pool_sessions(source: str, sessions: Sequence[Sequence[Side]]) -> list[Side]:
    """Return the series of several runs as one run. An InputError says in what the runs differ."""
    return [_pool(source, [_find_counterpart(side, session) for session in sessions]) for side in sessions[0]]


def _find_counterpart(side: Side, session: Sequence[Side]) -> Side:
    other = next((candidate for candidate in session if candidate.config == side.config), None)
    if other is None:
        raise InputError(f"{session[0].source}: there is no series {side.title!r}, which {side.source} has")
    differences = find_differences(side, other)
    if differences:
        first = differences[0]
        raise InputError(
            f"{side.source} and {other.source} are not sessions of one experiment, because they differ in"
            f" {', '.join(list_names(differences))} ({first.field}: {first.a} and {first.b})"
        )
    return other


def _pool(source: str, sides: Sequence[Side]) -> Side:
    counts = sorted({devices for side in sides for devices in side.points})
    points = {
        devices: _pool_point([side.points[devices] for side in sides if devices in side.points]) for devices in counts
    }
    base = next((side for side in sides if side.versions), sides[0])
    host_names = tuple(sorted({name for side in sides for name in side.host_names}))
    return replace(
        base, source=f"{source} ({len(sides)} runs)", points=points, host_names=host_names, sessions=len(sides)
    )


def _pool_point(points: Sequence[SidePoint]) -> SidePoint:
    """Return one point. One session without a result does not fail it."""
    good = [point for point in points if point.speed is not None]
    speeds = [point.speed.mean for point in good if point.speed is not None]
    states = {point.witness for point in points if point.speed is not None or point.witness == REFUTED}
    return replace(
        (good or points)[0],
        speed=make_estimate(mean_interval(speeds), len(speeds), is_sequential=False) if speeds else None,
        disturbance=next((point.disturbance for point in good if point.disturbance), ""),
        witness=next((state for state in (REFUTED, UNPROVEN, UNCHECKED) if state in states), PROVEN),
    )
