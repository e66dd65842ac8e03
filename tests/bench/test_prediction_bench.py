"""`bench/prediction.py` gives the errors from which the interval of a prediction is made."""

from dataclasses import asdict

import pytest

import prediction as bench
from trainscale.questions.predict import MOST_TIMES, PUBLISHED_ERRORS


def test_the_errors_are_those_of_all_published_cases_and_none_leaves_its_first_host() -> None:
    cases = bench.collect_cases()
    assert asdict(PUBLISHED_ERRORS) == pytest.approx(asdict(bench.find_error_range(cases)))
    for case in cases:
        given = case.curve.points[case.points - 1].devices
        per_host = case.curve.devices_per_host
        assert given < case.devices <= MOST_TIMES * given
        assert per_host is None or not given <= per_host < case.devices


def test_published_points_lie_in_the_interval_that_the_other_sources_give() -> None:
    cases = bench.collect_cases()
    inside = 0
    for source in {case.curve.source for case in cases}:
        errors = bench.find_error_range([case for case in cases if case.curve.source != source])
        inside += sum(errors.low <= case.score <= errors.high for case in cases if case.curve.source == source)
    assert inside / len(cases) == pytest.approx(0.936, abs=0.005)


def test_the_range_leaves_out_one_in_forty_at_each_end() -> None:
    curve = bench.collect_cases()[0].curve
    errors = bench.find_error_range([bench.Case(curve, 3, 8, error / 100, 0.01) for error in range(1, 80)])
    assert (errors.low, errors.high) == (pytest.approx(2), pytest.approx(78))
