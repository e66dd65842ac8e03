"""bench/measured_budget.py: what is printed of two runs that were measured."""

from pathlib import Path

import pytest
from factories import curve, make_config
from stored_runs import write_run

import measured_budget


@pytest.mark.parametrize(("speed", "code"), [(180.0, 0), (150.0, 1)])
def test_device_times_and_whether_the_results_differ(
    speed: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed, until_interval = ({1: 100.0, 2: 180.0}, 6), ({1: 100.0, 2: speed}, 3)
    write_run(tmp_path / measured_budget.FIXED, curve(make_config(), *fixed, 0.002))
    write_run(tmp_path / measured_budget.UNTIL_INTERVAL, curve(make_config(), *until_interval, 0.002))
    assert measured_budget.print_runs(tmp_path) == code
    printed = capsys.readouterr().out
    assert "| until-interval | 6 |" in printed
    assert "| 0.50 |" in printed
    assert "| fixed | 12 |" in printed
    assert f"2: {speed / 200:.4g} ±" in printed
