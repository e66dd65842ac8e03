"""Predictions continue a trend, have the interval that published curves suggest, and are refused where they would be
guesses.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from command import call
from factories import make_config, make_run, record_at
from studied_runs import STRONG_CONFIG, STRONG_SPEEDS, WEAK_CONFIG, WEAK_SPEEDS, ladder_records, write_study

from trainscale.analyse.series import Series, build_series
from trainscale.questions.predict import (
    Prediction,
    Refusal,
    compute_slopes,
    compute_unit,
    continue_curve,
    count_devices_of_host,
    describe_held_out,
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


def predicted(answer: Prediction | Refusal) -> Prediction:
    assert isinstance(answer, Prediction), answer
    return answer


# ---- the law


def test_the_efficiency_goes_on_to_change_as_it_did_last() -> None:
    curve = [(1, 100.0), (2, 190.0), (4, 361.0), (8, 600.0)]
    last = 600 / 722  # of the efficiency of 4 devices
    assert continue_curve(curve, 16) == pytest.approx(1200 * last)
    assert continue_curve(curve, 32) == pytest.approx(2400 * last**2)
    assert continue_curve([(1, 100.0), (2, 150.0), (4, 320.0)], 8) == pytest.approx(640), "not faster than they are"


def test_the_unit_of_errors_is_the_steepest_slope_but_never_below_one_per_cent() -> None:
    curve = [(1, 100.0), (2, 160.0), (4, 320.0)]
    assert compute_slopes(curve) == pytest.approx([math.log(0.8), 0.0])
    assert compute_unit(curve, 16) == pytest.approx(-2 * math.log(0.8))
    assert compute_unit([(1, 1.0), (2, 2.0), (4, 4.0)], 8) == pytest.approx(0.01)


# ---- predictions


def test_a_smooth_curve_has_a_narrow_interval_and_a_steep_or_noisy_one_a_wide_one() -> None:
    narrow, steep, noisy = (
        predicted(predict_series(series_of(smooth(loss, 16), repeats), 32, HOST))
        for loss, repeats in ((0.01, NEAR), (0.08, NEAR), (0.01, (0.9, 1.0, 1.1)))
    )
    assert narrow.samples_per_second.mean == pytest.approx(3200 * 0.99**5, rel=1e-3)
    assert narrow.efficiency is not None
    assert narrow.efficiency.mean == pytest.approx(0.99**5, rel=1e-3)
    widths = [answer.samples_per_second.relative or 0 for answer in (narrow, steep, noisy)]
    assert 0.01 < widths[0] < 0.1 < widths[1]
    assert widths[2] > 2 * widths[0]
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
    assert isinstance(answer, Refusal)
    assert reason in answer.reason
    assert answer.measure == measure


def test_one_host_with_enough_devices_is_no_boundary() -> None:
    series = series_of(smooth(0.02, 4))
    assert isinstance(predict_series(series, 8, 8), Prediction)
    assert isinstance(predict_series(series, 8, None), Refusal)


def test_the_devices_of_a_host_are_those_of_the_smallest() -> None:
    cuda, cpu = make_config(device="cuda", ranks_per_gpu=2), make_config(device="cpu", cores_per_device=2)
    single_host = make_run(machine={"cores": 9, "gpus": ["A", "B"]})
    several = make_run(
        machine={"cores": 64}, hosts={"a": {"cores": 16, "gpus": ["A"]}, "b": {"cores": 8, "gpus": ["A"] * 4}}
    )
    counts = [count_devices_of_host(run, config) for run in (single_host, several) for config in (cuda, cpu)]
    assert counts == [4, 4, 2, 4]
    assert count_devices_of_host(make_run(machine={}), cpu) is None


# ---- the command

WEAK = {**WEAK_SPEEDS, 16: 1400.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = [*ladder_records(WEAK_CONFIG, WEAK), *ladder_records(STRONG_CONFIG, STRONG_SPEEDS)]
    return str(write_study(tmp_path_factory.mktemp("predict") / "run", records))


def test_it_prints_measured_and_predicted_points_the_test_and_the_method(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, "predict", run)
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert "32 *" in flat
    assert "64 *" in flat
    assert "for 16 devices; 1,400 were measured: 2.6 % too low, inside the interval." in flat
    assert "16 devices: no prediction, because only one point is on several hosts" in flat
    assert "204 published points" in flat


def test_json_has_the_numbers_and_markdown_the_table(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "predict", run, "--devices", "32", "--json")
    weak, strong = json.loads(out)["series"]
    assert code == 0
    assert [item["devices"] for item in weak["measured"]] == [1, 2, 4, 8, 16]
    (prediction,) = weak["predictions"]
    interval = prediction["samples_per_second"]
    assert interval["mean"] == pytest.approx(2800 * 1400 / 1440)
    assert interval["low"] < interval["mean"] < interval["high"]
    assert strong["refusals"][0]["measure"] == [16]
    assert "| 32 * |" in call(capsys, "predict", run, "--devices", "32", "--markdown")[1]


def test_a_run_that_allows_no_prediction_ends_with_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_study(tmp_path / "run", ladder_records(WEAK_CONFIG, {1: 100.0, 2: 190.0}))
    code, out, _ = call(capsys, "predict", str(run), "--devices", "8")
    flat = " ".join(out.split())
    assert code == 1
    assert "a trend needs results on 3 device counts, and this series has 2; results on 4 devices" in flat
    assert "predicted" not in flat
    assert "published" not in flat
    assert "predicted" not in call(capsys, "predict", str(run), "--devices", "8", "--markdown")[1]
