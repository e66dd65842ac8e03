"""A comparison of two runs for programs. docs/compare.md describes every field."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..analyse.comparison.compare import UNKNOWN, ComparedPoint, Comparison, Curve
from ..analyse.comparison.sides import Side, SidePoint
from ..analyse.series import Interval
from ..analyse.statistics import CONFIDENCE
from ..worker.type_aliases import JsonObject
from . import comparison as sentences

# Schema history
#     1  first version
COMPARISON_SCHEMA = 1


def render_comparison_json(comparison: Comparison, exit_code: int) -> str:
    gate = comparison.gate
    document = {
        "schema": COMPARISON_SCHEMA,
        "verdict": comparison.verdict,
        "headline": sentences.make_headline(comparison),
        "margin": comparison.margin,
        "confidence": CONFIDENCE,
        "confidence_per_point": comparison.confidence,
        "gate": {
            "kind": gate.kind,
            "bound": gate.bound,
            "outcome": comparison.outcome,
            "sentence": sentences.describe_gate(comparison),
        }
        if gate
        else None,
        "exit_code": exit_code,
        "curves": [_encode_curve(curve, comparison.margin) for curve in comparison.curves],
        "notes": sentences.list_notes(comparison),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _encode_curve(curve: Curve, margin: float) -> JsonObject:
    return {
        "a": _encode_side(curve.a),
        "b": _encode_side(curve.b),
        "unit": curve.b.unit,
        "quantity": curve.b.quantity,
        "verdict": curve.verdict,
        "within": curve.within,
        "sentence": sentences.describe_curve(curve, margin),
        "differences": [asdict(difference) for difference in curve.differences],
        "only_a": list(curve.only_a),
        "only_b": list(curve.only_b),
        "points": [_encode_point(point, curve.b) for point in curve.points],
    }


def _encode_side(side: Side) -> JsonObject:
    facts = {"source": side.source, "title": side.title, "date": side.date or None}
    return {**facts, "citation": side.citation} if side.citation else facts


def _encode_point(point: ComparedPoint, side: Side) -> JsonObject:
    return {
        "devices": point.devices,
        "a": _encode_speed(point.a, side),
        "b": _encode_speed(point.b, side),
        "ratio": _encode_interval(point.ratio),
        "efficiency_ratio": _encode_interval(point.efficiency_ratio),
        "verdict": point.verdict if point.ratio else UNKNOWN,
        "outcome": point.outcome,
        "repeats_for_verdict": point.repeats_for_verdict,
        "repeats_for_gate": point.repeats_for_gate,
    }


def _encode_speed(point: SidePoint, side: Side) -> JsonObject:
    value = "efficiency" if side.has_efficiencies else "per_second"
    return {
        "hosts": point.hosts,
        "status": point.status,
        value: point.speed.mean if point.speed else None,
        "repeats": point.speed.repeats if point.speed else 0,
    }


def _encode_interval(interval: Interval | None) -> dict[str, float | None] | None:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high} if interval else None
