"""``trainscale report``: what its flags change, and wrong values of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import curve, make_config, make_run

from trainscale import cli
from trainscale.record.journal import open_journal


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    machine = {"host": "node17", "cpu": "A CPU", "cores": 2, "gpus": []}
    with open_journal(tmp_path / "run", make_run(machine=machine)) as journal:
        for record in curve(make_config(), {1: 100.0, 2: 180.0}, repeats=3, spread=0.01):
            journal.append(record)
    return tmp_path / "run"


def test_host_names_appear_only_on_request(directory: Path) -> None:
    assert cli.main(["report", str(directory)]) == 0
    assert "node17" not in (directory / "report.html").read_text()
    assert cli.main(["report", str(directory), "--show-hosts"]) == 0
    assert "node17" in (directory / "report.html").read_text()


def test_formats_give_files(directory: Path) -> None:
    assert cli.main(["report", str(directory), "--format", "png,pdf"]) == 0
    assert (directory / "efficiency.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "efficiency.pdf").read_bytes().startswith(b"%PDF")
    assert not (directory / "efficiency.svg").exists()


def test_a_price_gives_costs(directory: Path) -> None:
    assert cli.main(["report", str(directory), "--price", "3.6/device-hour"]) == 0
    assert "Costs are at 3.6/device-hour" in (directory / "report.html").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format", "gif"], "--format: unknown format 'gif'"),
        (["--price", "much"], "--price: 'much' is not a price"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(
    directory: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(directory), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (directory / "report.html").exists()
