"""The verdict on a curve, the gate, and what counts where a point is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sides_for_tests import NEAR, make_side, scaled

from trainscale.errors import InputError
from trainscale.questions.compare.compare import (
    AT_LEAST,
    FAIL,
    FASTER,
    MIXED,
    PASS,
    SAME,
    SLOWER,
    THRESHOLD,
    UNKNOWN,
    Gate,
    RunComparison,
    compare_pairs,
)
from trainscale.questions.compare.sides import Side
from trainscale.questions.compare.text import describe_curve
from trainscale.record.run import RecordedMachine

WIDE = (0.95, 0.98, 1.0, 1.02, 1.05)
A = make_side({1: scaled(100), 2: scaled(190), 4: scaled(360)})


def compare(b: Side, a: Side = A, **options: object) -> RunComparison:
    return compare_pairs([(a, b)], **options)  # type: ignore[arg-type]


def side(*factors: float, values: tuple[float, ...] = NEAR) -> Side:
    return make_side({n: scaled(s * f, values) for (n, s), f in zip({1: 100, 2: 190, 4: 360}.items(), factors)})  # noqa: B905


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ((1.0, 1.0, 1.0), SAME),
        ((0.95, 0.95, 0.95), SLOWER),
        ((1.05, 1.05, 1.05), FASTER),
        ((1.0, 1.0, 0.95), SLOWER),
        ((1.0, 1.05, 1.0), FASTER),
        ((1.05, 1.0, 0.95), MIXED),
    ],
)
def test_one_verdict_for_the_curve(factors: tuple[float, ...], verdict: str) -> None:
    comparison = compare(side(*factors))
    assert comparison.verdict == verdict
    assert [curve.verdict for curve in comparison.curves] == [verdict]


def test_wide_intervals_cannot_tell_and_say_how_many_repeats_would() -> None:
    comparison = compare(side(1.0, 1.0, 1.0, values=WIDE))
    assert comparison.verdict == UNKNOWN
    assert all(5 < (point.repeats_for_verdict or 0) < 200 for point in comparison.points)


@pytest.mark.parametrize(("on_one", "verdict"), [(100, UNKNOWN), (90, SLOWER)])
def test_a_difference_counts_more_than_what_is_unknown_and_that_more_than_what_is_the_same(
    on_one: float, verdict: str
) -> None:
    comparison = compare(make_side({1: scaled(on_one), 2: scaled(190), 4: scaled(360, WIDE)}))
    assert [point.verdict for point in comparison.points[1:]] == [SAME, UNKNOWN]
    assert comparison.verdict == verdict


def busy(side: Side, cores: float, repeats: int = 5) -> Side:
    return replace(side, other_cores={n: [cores] * repeats + [0.0] * (5 - repeats) for n in side.points})


def full(side: Side) -> Side:
    """The side on a machine whose workers need all cores."""
    return replace(side, machines=(RecordedMachine(cores=1),))


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (A, busy(side(0.8, 0.8, 0.8), 0.3), UNKNOWN),
        (A, busy(side(0.6, 0.6, 0.6), 0.3), SLOWER),  # what the others used does not explain so much
        (A, busy(side(0.9, 0.9, 0.9), 0.3, repeats=1), SLOWER),  # 0.3 cores in one of five repeats
        (A, busy(side(1.1, 1.1, 1.1), 0.3), FASTER),  # although it was disturbed
        (A, busy(side(1.0, 1.0, 1.0), 0.3), UNKNOWN),
        (busy(A, 0.3), side(1.2, 1.2, 1.2), UNKNOWN),
        (busy(A, 0.3), side(0.9, 0.9, 0.9), SLOWER),
        (A, busy(side(0.1, 0.1, 0.1), 1.5), UNKNOWN),
    ],
)
def test_what_other_programs_may_explain_is_not_claimed(a: Side, b: Side, verdict: str) -> None:
    comparison = compare(full(b), full(a))
    assert comparison.verdict == verdict
    assert all(point.is_hidden == (verdict == UNKNOWN) for point in comparison.points)


@pytest.mark.parametrize(("factor", "outcome"), [(0.9, UNKNOWN), (0.6, FAIL), (1.1, PASS)])
def test_a_gate_allows_for_what_other_programs_used(factor: float, outcome: str) -> None:
    comparison = compare(full(busy(side(factor, factor, factor), 0.3)), full(A), gate=Gate(THRESHOLD, 0.98))
    assert comparison.outcome == outcome


def test_programs_that_fit_onto_free_cores_take_nothing() -> None:
    """The machine has 8 cores, and 1, 2 and 4 of them are used."""
    assert compare(busy(side(0.9, 0.9, 0.9), 3.5)).verdict == SLOWER
    assert [point.verdict for point in compare(busy(side(0.9, 0.9, 0.9), 4.5)).points] == [SLOWER, SLOWER, UNKNOWN]


@pytest.mark.parametrize("repeats", [1, 2])
def test_without_intervals_nothing_is_claimed_however_large_the_difference(repeats: int) -> None:
    b = make_side({1: [50.0] * repeats, 2: [95.0] * repeats, 4: [180.0] * repeats})
    comparison = compare(b, gate=Gate(THRESHOLD, 0.98))
    assert (comparison.verdict, comparison.outcome) == (UNKNOWN, UNKNOWN)
    assert comparison.points[0].ratio.mean == pytest.approx(0.5)  # type: ignore[union-attr]


def test_intervals_are_adjusted_for_the_points_that_are_looked_at() -> None:
    b = side(1.0, 1.0, 1.0)
    all_points, only_4 = compare(b), compare(b, devices=[4])
    assert (all_points.confidence, only_4.confidence) == (pytest.approx(1 - 0.05 / 3), pytest.approx(0.95))
    assert [point.devices for point in only_4.points] == [4]
    assert all_points.points[2].ratio.half_width > only_4.points[0].ratio.half_width  # type: ignore[union-attr, operator]
    several = compare_pairs([(A, b), (A, side(0.9, 0.9, 0.9))])
    assert several.confidence == pytest.approx(1 - 0.05 / 6)
    assert [curve.verdict for curve in several.curves] == [SAME, SLOWER]
    assert several.verdict == SLOWER


# ---- efficiency


def test_the_efficiency_ratio_is_that_of_the_speedups() -> None:
    points = compare(side(0.9, 0.9, 0.81)).points
    assert points[0].efficiency_ratio is None
    assert points[1].efficiency_ratio.mean == pytest.approx(1.0)  # type: ignore[union-attr]
    assert points[2].efficiency_ratio.mean == pytest.approx(0.9)  # type: ignore[union-attr]
    assert points[2].efficiency_ratio.half_width > points[2].ratio.half_width  # type: ignore[union-attr, operator]
    without_baseline = make_side({2: scaled(190), 4: scaled(360)})
    assert [point.efficiency_ratio for point in compare(without_baseline).points] == [None, None]


# ---- gates


@pytest.mark.parametrize(
    ("gate", "factor", "outcome"),
    [
        (Gate(THRESHOLD, 0.98), 1.0, PASS),
        (Gate(THRESHOLD, 0.98), 0.999, PASS),
        (Gate(THRESHOLD, 0.98), 0.98, UNKNOWN),
        (Gate(THRESHOLD, 0.98), 0.9815, UNKNOWN),
        (Gate(THRESHOLD, 0.98), 0.97, FAIL),
        (Gate(THRESHOLD, 0.98), 1.1, PASS),
        (Gate(AT_LEAST, 0.95), 1.0, PASS),
        (Gate(AT_LEAST, 0.95), 0.96, PASS),
        (Gate(AT_LEAST, 0.95), 0.95, UNKNOWN),
        (Gate(AT_LEAST, 0.95), 0.94, FAIL),
    ],
)
def test_a_gate_is_decided_by_the_interval(gate: Gate, factor: float, outcome: str) -> None:
    comparison = compare(side(1.0, 1.0, factor), gate=gate)
    assert comparison.outcome == outcome
    assert [point.outcome for point in comparison.points] == [PASS, PASS, outcome]


def test_same_means_within_the_threshold() -> None:
    assert compare(side(1.0, 1.0, 1.0)).margin == 0.02
    narrow = compare(side(1.0, 1.0, 1.0), gate=Gate(THRESHOLD, 0.999))
    assert (narrow.margin, narrow.verdict) == (0.001, UNKNOWN)


def test_a_gate_says_how_many_repeats_would_decide_it() -> None:
    point = compare(side(1.0, 1.0, 0.9815), gate=Gate(THRESHOLD, 0.98)).points[2]
    assert point.verdict == SLOWER
    assert point.repeats_for_verdict is None
    assert 5 < (point.repeats_for_gate or 0) <= 30


def test_a_point_that_fails_only_in_b_fails_the_gate_and_one_that_fails_only_in_a_does_not_count() -> None:
    lost = make_side({1: scaled(100), 2: scaled(190), 4: []})
    comparison = compare(lost, gate=Gate(THRESHOLD, 0.98))
    assert comparison.outcome == FAIL
    assert (comparison.points[2].is_lost, comparison.points[2].outcome) == (True, FAIL)
    assert comparison.confidence == pytest.approx(1 - 0.05 / 2)
    assert compare(lost).verdict == SAME
    comparison = compare(side(1.0, 1.0, 1.0), lost, gate=Gate(THRESHOLD, 0.98))
    assert (comparison.outcome, comparison.points[2].outcome) == (PASS, None)


def test_a_point_that_b_did_not_measure_has_not_passed() -> None:
    b = make_side({1: scaled(100), 2: scaled(190)})
    assert compare(b, gate=Gate(AT_LEAST, 0.95)).outcome == UNKNOWN
    assert compare(b, gate=Gate(AT_LEAST, 0.95)).curves[0].only_a == (4,)
    assert compare(b, gate=Gate(AT_LEAST, 0.95), devices=[1, 2]).outcome == PASS
    assert compare(A, b, gate=Gate(AT_LEAST, 0.95)).outcome == PASS


# ---- nothing to compare


def test_a_network_that_failed_everywhere_is_named_beside_one_that_did_not() -> None:
    failed = make_side({1: [], 2: []})
    comparison = compare_pairs([(A, side(0.9, 0.9, 0.9)), (failed, failed)])
    assert [curve.verdict for curve in comparison.curves] == [SLOWER, UNKNOWN]
    assert describe_curve(comparison.curves[1], 0.02).startswith("nothing to compare: no device count has a result")


@pytest.mark.parametrize(
    ("b", "devices", "message"),
    [
        (make_side({1: [], 2: [], 4: []}), None, "no device count has a result in both A and B"),
        (A, [8], "--devices 8: not measured in both; valid: 1, 2, 4"),
        (make_side({8: scaled(700)}), None, r"no device count was measured in both: A, .* has 1, 2, 4; B, .* has 8"),
    ],
)
def test_device_counts_without_a_result_on_both_sides_are_refused(
    b: Side, devices: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare(b, devices=devices)
