"""Intervals agree with the tables and with hand-made examples."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from trainscale.analyse.statistics import (
    Interval,
    jitter,
    mean_interval,
    ratio_interval,
    sequential_factor,
    student_t,
)


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        (0.975, 1, 12.7062047),
        (0.975, 2, 4.30265273),
        (0.975, 3, 3.18244631),
        (0.975, 4, 2.77644511),
        (0.975, 9, 2.26215716),
        (0.975, 30, 2.04227246),
        (0.975, 120, 1.97993041),
        (0.95, 10, 1.81246112),
        (0.995, 10, 3.16927267),
        (0.9995, 2, 31.5990546),
    ],
)
def test_t_quantiles_are_those_of_the_tables(probability: float, freedom: float, expected: float) -> None:
    assert student_t(probability, freedom) == pytest.approx(expected, rel=1e-7)


def test_t_quantiles_of_one_and_two_degrees_of_freedom_are_their_closed_forms() -> None:
    p = 0.975
    assert student_t(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-10)
    assert student_t(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-10)


@pytest.mark.parametrize("freedom", [1.5, 4.3, 7.77])
def test_t_quantile_between_whole_degrees_of_freedom_agrees_with_integrating_the_density(freedom: float) -> None:
    quantile, steps = student_t(0.975, freedom), 20_000
    constant = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    width = quantile / steps
    middles = ((step + 0.5) * width for step in range(steps))
    area = width * math.fsum(constant * (1 + t * t / freedom) ** (-(freedom + 1) / 2) for t in middles)
    assert 0.5 + area == pytest.approx(0.975, abs=1e-8)


def test_t_approaches_the_normal_distribution_and_is_symmetric() -> None:
    assert student_t(0.975, 1e5) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-4)
    z = NormalDist().inv_cdf(0.975)
    assert student_t(0.975, 1e9) == pytest.approx(z + (z**3 + z) / 4e9, abs=1e-12)  # the first term of the expansion
    assert student_t(0.025, 7) == -student_t(0.975, 7)
    assert student_t(0.5, 3) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("probability", "freedom"), [(0, 5), (1, 5), (0.9, 0)])
def test_impossible_quantiles_are_refused(probability: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_t(probability, freedom)


# Computed by the earlier versions, which had their own continued fraction: results must not move.
EARLIER = [
    (0.975, 0.7, 36.61141503158433),
    (0.975, 1, 12.706204736172367),
    (0.975, 1.5, 6.016663104428517),
    (0.975, 2, 4.302652729749752),
    (0.975, 3.3, 3.0248744618411365),
    (0.975, 4, 2.776445105198036),
    (0.975, 9, 2.2621571627978483),
    (0.975, 23.75, 2.0650488461606074),
    (0.975, 120, 1.9799304050820865),
    (0.975, 5000.5, 1.9604385042430295),
    (0.9, 0.7, 5.009947959644705),
    (0.9, 1, 3.0776835371752895),
    (0.9, 1.5, 2.1963984175663427),
    (0.9, 2, 1.8856180831635356),
    (0.9, 3.3, 1.5983669585598363),
    (0.9, 4, 1.533206274058557),
    (0.9, 9, 1.3830287383966606),
    (0.9, 23.75, 1.3182288227576464),
    (0.9, 120, 1.2886462336559816),
    (0.9, 5000.5, 1.2817208883984677),
    (0.6, 0.7, 0.35603136523457124),
    (0.6, 1, 0.3249196962329961),
    (0.6, 1.5, 0.30074539256986554),
    (0.6, 2, 0.28867513459488237),
    (0.6, 3.3, 0.2745019742211525),
    (0.6, 4, 0.2707222947075252),
    (0.6, 9, 0.26095533647401226),
    (0.6, 23.75, 0.25620333172139453),
    (0.6, 120, 0.2539095232149293),
    (0.6, 5000.5, 0.25336058262075767),
]


@pytest.mark.parametrize(("probability", "freedom", "quantile"), EARLIER)
def test_quantiles_agree_with_those_of_earlier_versions(probability: float, freedom: float, quantile: float) -> None:
    assert student_t(probability, freedom) == pytest.approx(quantile, rel=1e-9)


def test_mean_interval_of_five_repeats() -> None:
    interval = mean_interval([10.0, 12.0, 11.0, 13.0, 9.0])
    reach = 2.77644511 * math.sqrt(2.5 / 5)
    assert interval.mean == 11
    assert interval.low == pytest.approx(11 - reach)
    assert interval.high == pytest.approx(11 + reach)
    assert interval.relative == pytest.approx(reach / 11)


def test_one_or_two_values_have_a_mean_but_no_interval() -> None:
    assert mean_interval([5.0]) == Interval(5.0)
    assert mean_interval([5.0, 6.0]) == mean_interval([5.0, 6.0], sequential=True) == Interval(5.5)
    assert mean_interval([5.0, 6.0, 7.0]).low is not None
    assert Interval(5.0).half_width is None
    assert Interval(5.0).relative is None


def test_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])
    with pytest.raises(ValueError, match="at least one value"):
        ratio_interval([1.0], [])


def test_the_centre_of_a_ratio_is_the_ratio_of_the_means_shown() -> None:
    tops, bottoms = [190.0, 200.0, 210.0], [99.0, 101.0, 103.0]
    ratio = ratio_interval(tops, bottoms)
    assert ratio.mean == pytest.approx(mean_interval(tops).mean / mean_interval(bottoms).mean)


def test_ratio_interval_by_hand_with_equal_spreads() -> None:
    # Relative variances of the means are equal, so Welch's degrees of freedom are (3-1) + (3-1) = 4.
    ratio = ratio_interval([198.0, 200.0, 202.0], [99.0, 100.0, 101.0])
    reach = 2.77644511 * math.sqrt(2 * (0.01**2 / 3))
    assert ratio.low == pytest.approx(2 * math.exp(-reach))
    assert ratio.high == pytest.approx(2 * math.exp(reach))


def test_swapping_a_ratio_inverts_its_limits() -> None:
    tops, bottoms = [190.0, 200.0, 215.0], [99.0, 101.0, 104.0, 98.0]
    ratio, inverse = ratio_interval(tops, bottoms), ratio_interval(bottoms, tops)
    assert ratio.low is not None
    assert inverse.high is not None
    assert inverse.high == pytest.approx(1 / ratio.low)


def test_a_ratio_needs_three_values_on_both_sides_for_an_interval() -> None:
    three = [1.0, 1.1, 1.2]
    assert ratio_interval([2.0, 2.1], three).low is None
    assert ratio_interval(three, [2.0, 2.1]).low is None
    assert ratio_interval(three, three).low is not None


def test_an_interval_is_wider_where_the_values_decided_how_many_there_are() -> None:
    values = [10.0, 12.0, 11.0, 13.0]
    fixed, sequential = mean_interval(values), mean_interval(values, sequential=True)
    assert sequential.mean == fixed.mean
    assert sequential.half_width == pytest.approx(fixed.half_width * 1.4)  # type: ignore[operator]  # 1 + 0.8/√4
    assert sequential_factor(16) == pytest.approx(1.2)


def test_a_sequential_ratio_by_hand_has_the_degrees_of_freedom_of_the_smaller_side() -> None:
    tops, bottoms = [198.0, 200.0, 202.0], [98.0, 100.0, 102.0, 100.0]
    ratio = ratio_interval(tops, bottoms, sequential=True)
    first = (1 + 0.8 / math.sqrt(3)) ** 2 * 0.01**2 / 3
    second = 1.4**2 * (8 / 3 / 100**2) / 4
    assert ratio.mean == 2
    assert ratio.high == pytest.approx(2 * math.exp(4.30265273 * math.sqrt(first + second)))


def test_identical_repeats_give_a_ratio_without_width() -> None:
    assert ratio_interval([2.0] * 3, [1.0] * 3) == Interval(2.0, 2.0, 2.0)


def test_a_ratio_of_speeds_that_are_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio_interval([0.0, 1.0], [1.0, 1.0])


def test_jitter_ignores_an_outlier() -> None:
    assert jitter([9.0, 10.0, 11.0]) == pytest.approx(1.4826)
    assert jitter([9.0, 10.0, 10.0, 11.0, 1000.0]) == pytest.approx(1.4826)
    assert jitter([5.0]) == 0


def test_scaling_an_interval_keeps_missing_limits_missing() -> None:
    assert Interval(4.0, 2.0, 6.0).scaled(0.5) == Interval(2.0, 1.0, 3.0)
    assert Interval(4.0).scaled(0.5) == Interval(2.0)
