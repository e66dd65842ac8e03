"""``trainscale report``: what its flags change, and wrong values of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from stored_runs import write_run

from trainscale import cli
from trainscale.cli.report import choose_labels
from trainscale.record.journal import open_journal

SPEEDS = {"slow": 50.0, "fast": 400.0}


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


def test_several_runs_give_one_report_in_a_directory_of_its_own(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "faster", curve(make_config(), {1: 200.0, 2: None}, repeats=3))
    before = sorted(path.name for path in directory.iterdir())
    for _ in range(2):  # a report of the same runs may be written again
        assert cli.main(["report", "run", "faster"]) == 0
    assert sorted(path.name for path in directory.iterdir()) == before
    page = (tmp_path / "report" / "report.html").read_text()
    assert "run · AlexNet · torch · allreduce" in page
    assert "faster · AlexNet · torch · allreduce" in page
    shown = capsys.readouterr().out
    assert "results: report/" in shown
    assert "What differs between the runs" in shown


def test_labels_and_published_curves_are_in_the_report_of_several_runs(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faster = write_run(tmp_path / "faster", curve(make_config(), {1: 200.0, 2: None}))
    curve_id = "published:tensorflow2017-dgx1-resnet50-b64-synthetic"
    flags = ["--label", "before", "--label", "after the change", "-o", str(tmp_path / "out"), "--with", curve_id]
    assert cli.main(["report", str(directory), str(faster), *flags]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "after the change · AlexNet · torch · allreduce" in page
    assert "Beside published curves" in page
    assert (tmp_path / "out" / "csv_torch" / "alexnet_b32_after_the_change.csv").exists()
    assert f"{curve_id} differs from before ·" in " ".join(capsys.readouterr().out.split())


def test_directories_of_the_same_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    assert choose_labels([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    assert choose_labels([tmp_path / "a" / "run", tmp_path / "b" / "other"]) == ["run", "other"]


def refused_inputs(tmp_path: Path) -> dict[str, list[str]]:
    """Return arguments by the message that they give."""
    run, other = str(tmp_path / "run"), str(write_run(tmp_path / "other", curve(make_config(), {1: 200.0})))
    open_journal(tmp_path / "begun", make_run()).close()
    newer = write_run(tmp_path / "newer", curve(make_config(), {1: 300.0}))
    values = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps({**values, "schema": 99}))
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    for path in (file, full / "notes.txt"):
        path.write_text("mine")
    both = [run, other]
    return {
        "this run is named 2 times": [run, other, f"{tmp_path}/other/../run"],
        "no trial of this run has finished": [run, str(tmp_path / "begun")],
        "schema 99": [run, str(newer)],
        "no run was recorded here": [run, str(full)],
        "--label: given 1 times for 2 runs": [*both, "--label", "a"],
        "another run has this label": [*both, "--label", "a b", "--label", "a_b"],
        "--label: a label is empty": [*both, "--label", "a", "--label", " "],
        "--label: valid with several runs": [run, "--label", "a"],
        "--output: valid with several runs": [run, "-o", str(tmp_path / "new")],
        "this is the directory of a run": [*both, "-o", other],
        "holds other files, or a report of other runs": [*both, "-o", str(full)],
        "this is a file": [*both, "-o", str(file)],
    }


def test_runs_that_cannot_share_a_report_are_refused_and_nothing_is_written(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for message, arguments in refused_inputs(tmp_path).items():
        assert cli.main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.startswith("trainscale: ")
        assert error.count("\n") == 1
    assert not list(tmp_path.rglob("report.html"))


def test_a_report_of_other_runs_is_not_overwritten(directory: Path, tmp_path: Path) -> None:
    runs = [str(write_run(tmp_path / name, curve(make_config(), {1: speed}))) for name, speed in SPEEDS.items()]
    first = ["report", runs[0], str(directory), "-o", str(tmp_path / "out")]
    assert cli.main(first) == 0
    assert cli.main(["report", *runs, "-o", str(tmp_path / "out")]) == 2
    assert cli.main(first) == 0
