"""bench/measured_budget.py: what is printed of two runs that were measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from factories import curve, make_config, make_run

import measured_budget
from trainscale.record.journal import open_journal


def record(folder: Path, name: str, speeds: dict[int, float], repeats: int) -> None:
    with open_journal(folder / name, make_run()) as journal:
        for trial in curve(make_config(), speeds, repeats, 0.002):
            journal.append(trial)


@pytest.mark.parametrize(("speed", "code"), [(180.0, 0), (150.0, 1)])
def test_device_times_and_whether_the_results_differ(
    speed: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, measured_budget.FIXED, {1: 100.0, 2: 180.0}, 6)
    record(tmp_path, measured_budget.UNTIL_INTERVAL, {1: 100.0, 2: speed}, 3)
    assert measured_budget.print_runs(tmp_path) == code
    printed = capsys.readouterr().out
    assert "| until-interval | 6 |" in printed
    assert "| 0.50 |" in printed
    assert "| fixed | 12 |" in printed
    assert f"2: {speed / 200:.4g} ±" in printed
