"""Numbers are written for people: few digits, grouped, with their units."""

from __future__ import annotations

import math

import pytest

from trainscale.analyse.statistics import Interval
from trainscale.report import numbers


def spaced(text: str) -> str:
    return text.replace(numbers.THIN, " ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(30.4, "30.40"), (457.07, "457.1"), (61938.36, "61,938"), (0.001234567, "0.001235"), (0.0, "0.000")],
)
def test_significant_digits_never_round_whole_digits_off(value: float, expected: str) -> None:
    assert spaced(numbers.format_number(value)) == expected


def test_what_does_not_exist_is_a_dash_not_a_zero() -> None:
    dash = numbers.MISSING
    assert numbers.format_number(None) == numbers.format_times(None) == numbers.format_efficiency(None) == dash
    assert numbers.format_size(None) == numbers.format_milliseconds(None) == numbers.format_integer(None) == dash
    assert numbers.format_number(math.nan) == dash
    assert (
        numbers.format_plus_minus(None)
        == numbers.format_plus_minus(Interval(3.0))
        == numbers.format_limits(Interval(3.0))
        == ""
    )


def test_efficiency_shows_as_many_digits_as_its_error_is_worth() -> None:
    assert spaced(numbers.format_efficiency(Interval(0.79, 0.76, 0.82))) == "79 ± 3 %"
    assert spaced(numbers.format_efficiency(Interval(0.973, 0.969, 0.977))) == "97.3 ± 0.4 %"
    assert spaced(numbers.format_efficiency(Interval(0.79))) == "79 %"


def test_plus_minus_is_relative() -> None:
    assert spaced(numbers.format_plus_minus(Interval(200.0, 199.0, 201.0))) == "±0.5 %"
    assert spaced(numbers.format_plus_minus(Interval(200.0, 180.0, 220.0))) == "±10 %"


def test_speedups_sizes_and_times() -> None:
    assert numbers.format_times(Interval(3.878)) == "3.88×"
    assert numbers.format_times(Interval(203.68)) == "203.7×"
    assert spaced(numbers.format_size(900)) == "900 B"
    assert spaced(numbers.format_size(629145600)) == "600 MiB"
    assert spaced(numbers.format_size(5 * 1024**4)) == "5.00 TiB"
    assert numbers.format_milliseconds(0.01234) == "12.3"
    assert numbers.format_limits(Interval(3.9, 3.8, 4.0)) == "3.80–4.00"
