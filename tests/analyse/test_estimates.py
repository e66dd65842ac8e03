"""Ratios of estimates are those of statistics.py, at any confidence; the number of repeats is enough."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest

from trainscale.analyse.statistics import (
    Estimate,
    count_repeats,
    make_estimate,
    make_exact,
    mean_interval,
    ratio,
    ratio_interval,
)

A, B = [100.0, 101.0, 99.5, 100.2], [97.0, 98.5, 96.9, 97.7, 97.2]


def estimate(values: list[float], is_sequential: bool = False) -> Estimate:
    return make_estimate(mean_interval(values, is_sequential), len(values), is_sequential)


@pytest.mark.parametrize("is_sequential", [False, True])
def test_at_95_percent_the_ratio_is_that_of_run_means(is_sequential: bool) -> None:
    ours = ratio([estimate(B, is_sequential)], [estimate(A, is_sequential)], 0.95)
    theirs = ratio_interval(B, A, is_sequential)
    assert (ours.mean, ours.low, ours.high) == pytest.approx((theirs.mean, theirs.low, theirs.high), rel=1e-12)


def test_one_sequential_side_widens_the_interval() -> None:
    plain = ratio([estimate(B)], [estimate(A)], 0.95)
    mixed = ratio([estimate(B)], [estimate(A, True)], 0.95)
    both = ratio([estimate(B, True)], [estimate(A, True)], 0.95)
    assert plain.half_width < mixed.half_width < both.half_width  # type: ignore[operator]


def test_more_confidence_is_a_wider_interval() -> None:
    assert ratio([estimate(B)], [estimate(A)], 0.99).half_width > ratio([estimate(B)], [estimate(A)], 0.95).half_width  # type: ignore[operator]


@pytest.mark.parametrize("few", [[100.0], [100.0, 101.0]])
def test_fewer_than_three_repeats_give_no_interval(few: list[float]) -> None:
    result = ratio([estimate(few)], [estimate(A)], 0.95)
    assert result.mean == pytest.approx(sum(few) / len(few) / (sum(A) / len(A)))
    assert (result.low, result.high) == (None, None)


def test_an_exact_number_adds_no_error() -> None:
    result, alone = ratio([estimate(B)], [make_exact(100.0)], 0.95), mean_interval(B)
    assert result.mean == pytest.approx(alone.mean / 100)
    assert result.relative == pytest.approx(alone.relative, rel=1e-3)
    assert ratio([make_exact(2.0)], [make_exact(1.0)], 0.95).low == 2.0


def test_the_spread_is_that_of_single_repeats_whatever_the_rule() -> None:
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


def test_a_side_with_one_repeat_is_taken_to_have_the_spread_of_the_other() -> None:
    assert count_repeats(estimate([100.0]), estimate(B), 0.02, 0.95) == count_repeats(
        Estimate(100.0, 1, estimate(B).spread), estimate(B), 0.02, 0.95
    )


@pytest.mark.parametrize(
    ("first", "second", "reach"),
    [
        (estimate([100.0]), estimate([99.0]), 0.02),  # no spread is known
        (estimate(A), estimate(B), 1e-6),  # far more than anybody repeats
        (estimate(A), estimate(B), 0.0),
    ],
)
def test_the_number_of_repeats_is_not_known(first: Estimate, second: Estimate, reach: float) -> None:
    assert count_repeats(first, second, reach, 0.95) is None
