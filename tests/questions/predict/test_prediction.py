"""Predictions continue a trend, have the interval that published curves suggest, and are refused where they would be
guesses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from factories import make_config, make_run, record_at

from trainscale.analyse.series import Series, build_series
from trainscale.questions.predict import (
    MOST_TIMES,
    Case,
    Prediction,
    Refusal,
    collect_published_cases,
    compute_slopes,
    compute_unit,
    continue_curve,
    count_devices_of_host,
    describe_held_out,
    estimate_published_errors,
    find_error_range,
    predict_series,
)

HOST = 4  # devices of a made-up host
NEAR = (0.999, 1.0, 1.001)


def series_of(speeds: Mapping[int, float], repeats: tuple[float, ...] = NEAR) -> Series:
    config = make_config(device="cuda", cores_per_device=0)
    records = [
        record_at(speed * value, config, devices, repeat, hosts=math.ceil(devices / HOST))
        for repeat, value in enumerate(repeats)
        for devices, speed in speeds.items()
    ]
    (series,) = build_series(records)
    return series


def smooth(loss: float, most: int) -> dict[int, float]:
    """A curve that loses this share with every doubling."""
    return {n: 100.0 * n * (1 - loss) ** math.log2(n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= most}


def refused(answer: Prediction | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return answer.reason


def predicted(answer: Prediction | Refusal) -> Prediction:
    assert isinstance(answer, Prediction), answer
    return answer


# ---- the law


def test_the_efficiency_goes_on_to_change_as_it_did_last() -> None:
    curve = [(1, 100.0), (2, 190.0), (4, 361.0), (8, 600.0)]
    last = 600 / 722  # of the efficiency of 4 devices
    assert continue_curve(curve, 16) == pytest.approx(1200 * last)
    assert continue_curve(curve, 32) == pytest.approx(2400 * last**2)


def test_devices_do_not_become_faster_because_there_are_more_of_them() -> None:
    assert continue_curve([(1, 100.0), (2, 150.0), (4, 320.0)], 8) == pytest.approx(640)


def test_the_unit_of_errors_is_the_steepest_slope_but_never_below_one_per_cent() -> None:
    curve = [(1, 100.0), (2, 160.0), (4, 320.0)]
    assert compute_slopes(curve) == pytest.approx([math.log(0.8), 0.0])
    assert compute_unit(curve, 16) == pytest.approx(-2 * math.log(0.8))
    assert compute_unit([(1, 1.0), (2, 2.0), (4, 4.0)], 8) == pytest.approx(0.01)


# ---- how wrong such predictions are


def test_published_curves_give_enough_cases_and_none_leaves_its_first_host() -> None:
    cases = collect_published_cases()
    assert estimate_published_errors().cases == len(cases) >= 200
    for case in cases:
        given = case.curve.points[case.points - 1].devices
        per_host = case.curve.devices_per_host
        assert given < case.devices <= MOST_TIMES * given
        assert per_host is None or not given <= per_host < case.devices


def test_published_points_lie_in_the_interval_that_the_other_sources_give() -> None:
    cases = collect_published_cases()
    inside = 0
    for source in {case.curve.source for case in cases}:
        errors = find_error_range([case for case in cases if case.curve.source != source])
        inside += sum(errors.low <= case.score <= errors.high for case in cases if case.curve.source == source)
    assert inside / len(cases) == pytest.approx(0.936, abs=0.005)  # bench/prediction.py prints it


def test_the_range_leaves_out_one_in_forty_at_each_end() -> None:
    curve = collect_published_cases()[0].curve
    cases = [Case(curve, 3, 8, error / 100, 0.01) for error in range(1, 80)]
    errors = find_error_range(cases)
    assert (errors.low, errors.high) == (pytest.approx(2), pytest.approx(78))


# ---- predictions


def test_a_smooth_curve_has_a_narrow_interval_and_a_steep_one_a_wide_one() -> None:
    narrow, wide = (predicted(predict_series(series_of(smooth(loss, 16)), 32, HOST)) for loss in (0.01, 0.08))
    assert narrow.samples_per_second.mean == pytest.approx(3200 * 0.99**5, rel=1e-3)
    assert narrow.efficiency is not None
    assert narrow.efficiency.mean == pytest.approx(0.99**5, rel=1e-3)
    widths = [answer.samples_per_second.relative or 0 for answer in (narrow, wide)]
    assert 0.01 < widths[0] < 0.1 < widths[1]
    assert narrow.given == (1, 2, 4, 8, 16)


def test_the_largest_point_is_predicted_from_the_others_as_a_test() -> None:
    held_out = predicted(predict_series(series_of(smooth(0.02, 16)), 32, HOST)).held_out
    assert held_out is not None
    assert held_out.devices == 16
    assert describe_held_out(held_out, "images").endswith("inside the interval.")
    broken = predicted(predict_series(series_of({**smooth(0.02, 16), 16: 1250.0}), 32, HOST)).held_out
    assert broken is not None
    assert broken.predicted.mean / broken.measured == pytest.approx(0.98**4 * 1600 / 1250, rel=1e-2)
    assert "too high, OUTSIDE the interval" in describe_held_out(broken, "images")


def test_noise_of_the_last_points_widens_the_interval() -> None:
    quiet, noisy = (
        predicted(predict_series(series_of(smooth(0.01, 16), values), 32, HOST)).samples_per_second.relative or 0
        for values in (NEAR, (0.9, 1.0, 1.1))
    )
    assert noisy > 2 * quiet


# ---- refusals


@pytest.mark.parametrize(
    ("speeds", "devices", "reason", "measure"),
    [
        (smooth(0.02, 16), 8, "it was measured", ()),
        (smooth(0.02, 16), 12, "less than the 16 devices", (12,)),
        (smooth(0.02, 16), 128, "more than 4 times the 16 devices", (32,)),
        ({1: 100.0, 8: 700.0}, 16, "this series has 2", (2,)),
        (smooth(0.02, 4), 8, "all points are on one host", ()),
        (smooth(0.02, 8), 32, "only one point is on several hosts", (16,)),
        (smooth(0.4, 16), 64, "so steep that the interval would be", (32,)),
    ],
)
def test_what_would_be_a_guess_is_refused(
    speeds: Mapping[int, float], devices: int, reason: str, measure: tuple[int, ...]
) -> None:
    answer = predict_series(series_of(speeds), devices, HOST)
    assert reason in refused(answer)
    assert isinstance(answer, Refusal)
    assert answer.measure == measure


def test_one_host_with_enough_devices_is_no_boundary() -> None:
    series = series_of(smooth(0.02, 4))
    assert isinstance(predict_series(series, 8, 8), Prediction)
    assert "one host" in refused(predict_series(series, 8, None))


def test_the_devices_of_a_host_are_those_of_the_smallest() -> None:
    cuda, cpu = make_config(device="cuda", ranks_per_gpu=2), make_config(device="cpu", cores_per_device=2)
    single_host = make_run(machine={"cores": 9, "gpus": ["A", "B"]})
    several = make_run(
        machine={"cores": 64}, hosts={"a": {"cores": 16, "gpus": ["A"]}, "b": {"cores": 8, "gpus": ["A"] * 4}}
    )
    assert [count_devices_of_host(run, config) for run in (single_host, several) for config in (cuda, cpu)] == [
        4,
        4,
        2,
        4,
    ]
    assert count_devices_of_host(make_run(machine={}), cpu) is None
