"""Words for the comparison of a run's efficiency with the nearest published points: a verdict and its evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from ..analyse.published.neighbours import HIGH, LOW, NORMAL, Neighbour, NeighbourComparison
from ..analyse.series import Interval
from ..worker.type_aliases import JsonObject
from . import numbers, wording

# Schema history
#     1  first version
LIKE_SCHEMA = 1
_MOST_SHOWN = 12
_FEW = 3  # fewer near points than this are weak evidence
_VERDICTS = {NORMAL: "is normal", LOW: "is low", HIGH: "is high"}
_TOO_FAR = {
    "network": "network",
    "hardware": "hardware (no published point is of CPUs)",
    "scaling": "scaling (weak or strong)",
    "hosts": "hosts (one or several)",
    "strategy": "strategy",
    "batch": "batch (by more than a factor of 4)",
    "devices": "device count (by more than a factor of 2)",
}


def describe_comparison(comparison: NeighbourComparison) -> str:
    """Return where the efficiency of a point stands."""
    point, compared = comparison.point, comparison.compared
    subject = f"{comparison.work.title} on {wording.format_devices_and_hosts(point)}"
    own = numbers.format_efficiency(comparison.efficiency)
    if comparison.verdict is None:
        reason = _explain_no_verdict(comparison)
        return f"{subject}: nothing published is near, so its efficiency of {own} cannot be placed. {reason}"
    values = sorted(neighbour.efficiency for neighbour in compared)
    middle = numbers.format_percent(comparison.median)
    span = f"{values[0] * 100:.0f}–{numbers.format_percent(values[-1])}, median {middle}"
    sources = f"{comparison.sources} source{'' if comparison.sources == 1 else 's'}"
    count = f"{len(compared)} near published point{'' if len(compared) == 1 else 's'}{_describe_likeness(comparison)}"
    few = "; so few points are weak evidence" if len(compared) < _FEW else ""
    return (
        f"{subject} {_VERDICTS[comparison.verdict]}: its efficiency of {own} is {_describe_places(comparison)} {count}"
        f" from {sources} ({span}){few}."
    )


def list_neighbours(comparison: NeighbourComparison) -> list[tuple[str, str]]:
    """Return the nearest points as pairs of lines: a point, and what differs. Where none is near, only a few."""
    shown = comparison.compared[:_MOST_SHOWN] or comparison.neighbours[:_FEW]
    return [
        (
            f"{neighbour.efficiency * 100:6.1f}{numbers.THIN}% at {neighbour.point.devices:>4}  {neighbour.curve.id}",
            f"differs in {_join_traits(neighbour)}"
            if neighbour.traits
            else "differs in nothing that its source states",
        )
        for neighbour in shown
    ]


def make_heading(comparison: NeighbourComparison) -> str:
    """Return the line over the nearest points."""
    if not comparison.compared:
        return "The nearest published points, none of them near: efficiency, devices, ID"
    hidden = len(comparison.compared) - _MOST_SHOWN
    more = f" ({hidden} more: --json has all)" if hidden > 0 else ""
    return f"The nearest published points: efficiency, devices, ID{more}"


def render_like_json(comparisons: Sequence[NeighbourComparison]) -> str:
    document = {"schema": LIKE_SCHEMA, "series": [_encode_comparison(comparison) for comparison in comparisons]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _describe_places(comparison: NeighbourComparison) -> str:
    """Return ``in the middle half of``; if an interval reaches further, ``below all or in the lowest quarter of``."""
    places = [place if place.endswith("all") else f"in the {place}" for place in comparison.places]
    text = " or ".join(places)
    return text if text.endswith("all") else f"{text} of"


def _describe_likeness(comparison: NeighbourComparison) -> str:
    if not comparison.agree_in:
        return " of networks of about this size" if not _is_same_network(comparison) else ""
    device = f" on {comparison.work.device}" if "hardware" in comparison.agree_in else ""
    return f" of {comparison.work.network_title}{device}"


def _is_same_network(comparison: NeighbourComparison) -> bool:
    return all(neighbour.agrees_in("network") for neighbour in comparison.compared)


def _explain_no_verdict(comparison: NeighbourComparison) -> str:
    if not comparison.neighbours:
        return "The table has no point with a 1-device baseline."
    reasons = wording.join_names(_TOO_FAR[name] for name in comparison.neighbours[0].too_far)
    return f"The nearest point differs too much in {reasons}."


def _join_traits(neighbour: Neighbour) -> str:
    return "; ".join(f"{trait.name}: {trait.published}" for trait in neighbour.traits)


def _encode_comparison(comparison: NeighbourComparison) -> JsonObject:
    compared = comparison.compared
    return {
        "title": comparison.work.title,
        "devices": comparison.point.devices,
        "efficiency": _encode_interval(comparison.efficiency),
        "verdict": comparison.verdict,
        "places": list(comparison.places),
        "sentence": describe_comparison(comparison),
        "near": len(compared),
        "agree_in": list(comparison.agree_in),
        "sources": comparison.sources,
        "median": comparison.median if compared else None,
        "points": [_encode_neighbour(neighbour) for neighbour in compared or comparison.neighbours],
    }


def _encode_neighbour(neighbour: Neighbour) -> JsonObject:
    return {
        "id": neighbour.curve.id,
        "devices": neighbour.point.devices,
        "efficiency": neighbour.efficiency,
        "distance": neighbour.distance,
        "too_far": list(neighbour.too_far),
        "differences": [asdict(trait) for trait in neighbour.traits],
    }


def _encode_interval(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
