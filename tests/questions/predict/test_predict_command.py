"""``trainscale predict``: what it prints for a run, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import failed_record
from studied_runs import STRONG_CONFIG, STRONG_SPEEDS, WEAK_CONFIG, WEAK_SPEEDS, ladder_records, write_study

from trainscale import cli

WEAK = {**WEAK_SPEEDS, 16: 1400.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = [*ladder_records(WEAK_CONFIG, WEAK), *ladder_records(STRONG_CONFIG, STRONG_SPEEDS)]
    return str(write_study(tmp_path_factory.mktemp("predict") / "run", records))


def predict(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["predict", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_prints_measured_and_predicted_points_the_test_and_the_method(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = predict(capsys, run)
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    assert "32 *" in flat
    assert "64 *" in flat
    assert "for 16 devices; 1,400 were measured: 2.6 % too low, inside the interval." in flat
    assert "16 devices: no prediction, because only one point is on several hosts" in flat
    assert "204 published points" in flat


def test_json_has_the_numbers_and_markdown_the_table(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = predict(capsys, run, "--devices", "32", "--json")
    weak, strong = json.loads(out)["series"]
    assert code == 0
    assert [item["devices"] for item in weak["measured"]] == [1, 2, 4, 8, 16]
    (prediction,) = weak["predictions"]
    interval = prediction["samples_per_second"]
    assert interval["mean"] == pytest.approx(2800 * 1400 / 1440)
    assert interval["low"] < interval["mean"] < interval["high"]
    assert strong["refusals"][0]["measure"] == [16]
    code, out, _ = predict(capsys, run, "--devices", "32", "--markdown")
    assert "| 32 * |" in out


def test_a_run_that_allows_no_prediction_ends_with_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_study(tmp_path / "run", ladder_records(WEAK_CONFIG, {1: 100.0, 2: 190.0}))
    code, out, _ = predict(capsys, str(run), "--devices", "8")
    flat = " ".join(out.split())
    assert code == 1
    assert "a trend needs results on 3 device counts, and this series has 2; results on 4 devices" in flat
    assert "predicted" not in flat
    assert "published" not in flat
    assert "predicted" not in predict(capsys, str(run), "--devices", "8", "--markdown")[1]


@pytest.mark.parametrize("value", ["0", "x", ",", "-2", "1" * 5000])
def test_wrong_device_counts_are_named(run: str, capsys: pytest.CaptureFixture[str], value: str) -> None:
    code, out, err = predict(capsys, run, f"--devices={value}")
    assert (code, out) == (2, "")
    assert "--devices" in err


def test_runs_without_results_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = predict(capsys, str(tmp_path))
    assert code == 2
    assert "no run was recorded here" in err
    code, _, err = predict(capsys, str(write_study(tmp_path / "empty", [])))
    assert code == 2
    assert "no trial of this run has finished" in err
    failed = write_study(tmp_path / "failed", [failed_record(WEAK_CONFIG)])
    code, _, err = predict(capsys, str(failed))
    assert code == 2
    assert "every trial of this run failed" in err
