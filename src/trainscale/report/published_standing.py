"""Am I normal? The answer as a sentence, with the nearest published points as its evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..analyse.published.neighbours import HIGH, LOW, NORMAL, Neighbour, Standing
from ..analyse.series import Interval
from . import numbers, wording

# Schema history
#     1  first version
LIKE_SCHEMA = 1
_MOST_SHOWN = 12
_FEW = 3  # fewer near points than this do not tell much
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


def sentence(standing: Standing) -> str:
    """Return where the efficiency of a point stands."""
    point, compared = standing.point, standing.compared
    subject = f"{standing.work.title} on {wording.devices_and_hosts(point)}"
    own = numbers.efficiency(standing.efficiency)
    if standing.verdict is None:
        return f"{subject}: nothing published is near, so its efficiency of {own} cannot be placed. {_why(standing)}"
    values = sorted(neighbour.efficiency for neighbour in compared)
    middle = numbers.percent(standing.median)
    span = f"{values[0] * 100:.0f}–{numbers.percent(values[-1])}, median {middle}"
    sources = f"{standing.sources} source{'' if standing.sources == 1 else 's'}"
    count = f"{len(compared)} near published point{'' if len(compared) == 1 else 's'}{_alike(standing)}"
    few = "; so few points do not tell much" if len(compared) < _FEW else ""
    return (
        f"{subject} {_VERDICTS[standing.verdict]}: its efficiency of {own} is {_place(standing)} {count}"
        f" from {sources} ({span}){few}."
    )


def neighbour_lines(standing: Standing) -> list[tuple[str, str]]:
    """Return the nearest points as pairs of lines: a point, and what differs. Where none is near, only a few."""
    shown = standing.compared[:_MOST_SHOWN] or standing.neighbours[:_FEW]
    return [
        (
            f"{neighbour.efficiency * 100:6.1f}{numbers.THIN}% at {neighbour.point.devices:>4}  {neighbour.curve.id}",
            f"differs in {_traits(neighbour)}" if neighbour.traits else "differs in nothing that its source states",
        )
        for neighbour in shown
    ]


def heading(standing: Standing) -> str:
    """Return the line over the nearest points."""
    if not standing.compared:
        return "The nearest published points, none of them near: efficiency, devices, ID"
    hidden = len(standing.compared) - _MOST_SHOWN
    more = f" ({hidden} more: --json has all)" if hidden > 0 else ""
    return f"The nearest published points: efficiency, devices, ID{more}"


def like_json(standings: Sequence[Standing]) -> str:
    document = {"schema": LIKE_SCHEMA, "series": [_values(standing) for standing in standings]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _place(standing: Standing) -> str:
    """Return ``in the middle half of``; if an interval reaches further, ``below all or in the lowest quarter of``."""
    places = [place if place.endswith("all") else f"in the {place}" for place in standing.places]
    text = " or ".join(places)
    return text if text.endswith("all") else f"{text} of"


def _alike(standing: Standing) -> str:
    if not standing.agree_in:
        return " of networks of about this size" if not _is_known(standing) else ""
    device = f" on {standing.work.device}" if "hardware" in standing.agree_in else ""
    return f" of {standing.work.network_title}{device}"


def _is_known(standing: Standing) -> bool:
    return all(neighbour.agrees_in("network") for neighbour in standing.compared)


def _why(standing: Standing) -> str:
    if not standing.neighbours:
        return "The table has no point with a 1-device baseline."
    reasons = wording.join_names(_TOO_FAR[name] for name in standing.neighbours[0].too_far)
    return f"The nearest point differs too much in {reasons}."


def _traits(neighbour: Neighbour) -> str:
    return "; ".join(f"{trait.name}: {trait.published}" for trait in neighbour.traits)


def _values(standing: Standing) -> dict[str, Any]:
    compared = standing.compared
    return {
        "title": standing.work.title,
        "devices": standing.point.devices,
        "efficiency": _interval(standing.efficiency),
        "verdict": standing.verdict,
        "places": list(standing.places),
        "sentence": sentence(standing),
        "near": len(compared),
        "agree_in": list(standing.agree_in),
        "sources": standing.sources,
        "median": standing.median if compared else None,
        "points": [_neighbour(neighbour) for neighbour in compared or standing.neighbours],
    }


def _neighbour(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "id": neighbour.curve.id,
        "devices": neighbour.point.devices,
        "efficiency": neighbour.efficiency,
        "distance": neighbour.distance,
        "too_far": list(neighbour.too_far),
        "differences": [asdict(trait) for trait in neighbour.traits],
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
