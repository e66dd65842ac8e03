"""Intervals agree with the tables and with hand-made examples."""

import math
import random
from statistics import fmean, stdev

import pytest

from trainscale.analyse.statistics import (
    Estimate,
    Interval,
    count_repeats,
    jitter,
    make_estimate,
    mean_interval,
    ratio,
    ratio_interval,
    sequential_factor,
    student_t,
)


def test_mean_intervals_are_by_students_tables_from_three_values_on() -> None:
    quantiles = [student_t(0.975, 1), student_t(0.975, 4), student_t(0.9995, 2)]
    assert quantiles == pytest.approx([12.7062047, 2.77644511, 31.5990546], rel=1e-7)
    assert student_t(0.975, 23.75) == pytest.approx(2.0650488461606074, rel=1e-9)  # Welch's need not be whole
    interval = mean_interval([10.0, 12.0, 11.0, 13.0, 9.0])
    reach = 2.77644511 * math.sqrt(2.5 / 5)
    assert interval.mean == 11
    assert interval.low == pytest.approx(11 - reach)
    assert interval.high == pytest.approx(11 + reach)
    assert interval.relative == pytest.approx(reach / 11)
    assert mean_interval([5.0]) == Interval(5.0)
    assert mean_interval([5.0, 6.0]) == mean_interval([5.0, 6.0], sequential=True) == Interval(5.5)
    assert mean_interval([5.0, 6.0, 7.0]).low is not None
    assert Interval(5.0).half_width is None
    assert Interval(5.0).relative is None
    assert Interval(4.0, 2.0, 6.0).scaled(0.5) == Interval(2.0, 1.0, 3.0)
    assert Interval(4.0).scaled(0.5) == Interval(2.0)


def test_ratio_intervals_by_hand() -> None:
    # Relative variances of the means are equal, so Welch's degrees of freedom are (3-1) + (3-1) = 4.
    ratio = ratio_interval([198.0, 200.0, 202.0], [99.0, 100.0, 101.0])
    reach = 2.77644511 * math.sqrt(2 * (0.01**2 / 3))
    assert ratio.low == pytest.approx(2 * math.exp(-reach))
    assert ratio.high == pytest.approx(2 * math.exp(reach))
    tops, bottoms = [198.0, 200.0, 202.0], [98.0, 100.0, 102.0, 100.0]
    ratio = ratio_interval(tops, bottoms, sequential=True)
    first = (1 + 0.8 / math.sqrt(3)) ** 2 * 0.01**2 / 3
    second = 1.4**2 * (8 / 3 / 100**2) / 4
    assert ratio.mean == 2
    assert ratio.high == pytest.approx(2 * math.exp(4.30265273 * math.sqrt(first + second)))


def test_a_ratio_needs_three_values_on_both_sides_for_an_interval_which_its_inverse_inverts() -> None:
    three = [1.0, 1.1, 1.2]
    assert ratio_interval([2.0, 2.1], three).low is None
    assert ratio_interval(three, [2.0, 2.1]).low is None
    assert ratio_interval([2.0] * 3, [1.0] * 3) == Interval(2.0, 2.0, 2.0)
    tops, bottoms = [190.0, 200.0, 215.0], [99.0, 101.0, 104.0, 98.0]
    assert ratio_interval(bottoms, tops).high == pytest.approx(1 / ratio_interval(tops, bottoms).low)


def test_an_interval_is_wider_where_the_values_decided_how_many_there_are() -> None:
    values = [10.0, 12.0, 11.0, 13.0]
    fixed, sequential = mean_interval(values), mean_interval(values, sequential=True)
    assert sequential.mean == fixed.mean
    assert sequential.half_width == pytest.approx(fixed.half_width * 1.4)  # type: ignore[operator]  # 1 + 0.8/√4
    assert sequential_factor(16) == pytest.approx(1.2)


def test_jitter_ignores_an_outlier() -> None:
    assert jitter([9.0, 10.0, 11.0]) == pytest.approx(1.4826)
    assert jitter([9.0, 10.0, 10.0, 11.0, 1000.0]) == pytest.approx(1.4826)
    assert jitter([5.0]) == 0


# ---- estimates

A, B = [100.0, 101.0, 99.5, 100.2], [97.0, 98.5, 96.9, 97.7, 97.2]


def estimate(values: list[float], is_sequential: bool = False) -> Estimate:
    return make_estimate(mean_interval(values, is_sequential), len(values), is_sequential)


def test_an_interval_of_a_ratio_widens_with_sequential_sides_and_with_confidence() -> None:
    plain, of_means = ratio([estimate(B)], [estimate(A)], 0.95), ratio_interval(B, A)
    assert (plain.mean, plain.low, plain.high) == pytest.approx((of_means.mean, of_means.low, of_means.high), rel=1e-12)
    mixed = ratio([estimate(B)], [estimate(A, True)], 0.95)
    both = ratio([estimate(B, True)], [estimate(A, True)], 0.95)
    assert plain.half_width < mixed.half_width < both.half_width
    assert ratio([estimate(B)], [estimate(A)], 0.99).half_width > plain.half_width


def test_an_exact_number_adds_no_error_and_spreads_are_those_of_repeats() -> None:
    result, alone = ratio([estimate(B)], [Estimate(100.0, None, 0.0)], 0.95), mean_interval(B)
    assert result.mean == pytest.approx(alone.mean / 100)
    assert result.relative == pytest.approx(alone.relative, rel=1e-3)
    assert ratio([Estimate(2.0, None, 0.0)], [Estimate(1.0, None, 0.0)], 0.95).low == 2.0
    assert estimate(A).spread == pytest.approx(estimate(A, True).spread)
    assert estimate(A).spread == pytest.approx(stdev(A) / fmean(A))


@pytest.mark.parametrize("is_sequential", [False, True])
def test_the_number_of_repeats_is_the_smallest_that_is_enough(is_sequential: bool) -> None:
    first, second, confidence, reach = estimate(A, is_sequential), estimate(B, is_sequential), 0.99, 0.006
    repeats = count_repeats(first, second, reach, confidence)
    assert repeats is not None

    def half_width(count: int) -> float:
        sides = [side.with_repeats(count, side.spread or 0.0) for side in (first, second)]
        interval = ratio(sides[:1], sides[1:], confidence)
        return (interval.high or 0.0) / interval.mean - 1

    assert half_width(repeats) <= 0.00602
    assert half_width(repeats - 1) > 0.006


def test_that_many_repeats_decide_in_half_of_all_runs() -> None:
    """Speeds that differ by 1 % with a CV of 0.8 %: the number that the true spread gives."""
    first, second = Estimate(100.0, 3, 0.008 / 3**0.5), Estimate(99.0, 3, 0.008 / 3**0.5)
    repeats = count_repeats(first, second, 0.01, 0.95)
    assert repeats is not None
    source, decided = random.Random(5), 0
    for _ in range(400):
        a = [source.gauss(100, 0.8) for _ in range(repeats)]
        b = [source.gauss(99, 0.8) for _ in range(repeats)]
        decided += (ratio([estimate(b)], [estimate(a)], 0.95).high or 1.0) < 1
    assert 150 < decided < 260


def test_repeats_are_counted_with_the_spread_of_the_other_side_and_not_without_any() -> None:
    borrowed = Estimate(100.0, 1, estimate(B).spread)
    count = count_repeats(estimate([100.0]), estimate(B), 0.02, 0.95)
    assert count == count_repeats(borrowed, estimate(B), 0.02, 0.95) is not None
    assert count_repeats(estimate([100.0]), estimate([99.0]), 0.02, 0.95) is None  # no spread is known
    for reach in (1e-6, 0.0):  # far more than anybody repeats
        assert count_repeats(estimate(A), estimate(B), reach, 0.95) is None
