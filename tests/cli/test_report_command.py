"""``trainscale report``: what its flags change, and wrong values of them."""

from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from stored_runs import write_run

from trainscale import cli

SPEEDS = {"slow": 50.0, "fast": 400.0}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    machine = {"host": "node17", "cpu": "A CPU", "cores": 2, "gpus": []}
    records = curve(make_config(), {1: 100.0, 2: 180.0}, repeats=3, spread=0.01)
    return write_run(tmp_path / "run", records, make_run(machine=machine))


def test_host_names_costs_and_files_of_charts_appear_only_on_request(directory: Path) -> None:
    assert cli.main(["report", str(directory)]) == 0
    assert "node17" not in (directory / "report.html").read_text()
    argv = ["report", str(directory), "--show-hosts", "--price", "3.6/device-hour", "--format", "png,pdf"]
    assert cli.main(argv) == 0
    assert "node17" in (directory / "report.html").read_text()
    assert "Costs are at 3.6/device-hour" in (directory / "report.html").read_text()
    assert (directory / "efficiency.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "efficiency.pdf").read_bytes().startswith(b"%PDF")
    assert not (directory / "efficiency.svg").exists()


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


def test_directories_of_the_same_name_are_told_apart_by_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/run", "b/run", "b/other"):
        write_run(tmp_path / name, curve(make_config(), {1: 200.0}))
    for second, labels in (("b/run", ("a/run", "b/run")), ("b/other", ("run", "other"))):
        assert cli.main(["report", "a/run", second, "-o", second.replace("/", "-")]) == 0
        page = (tmp_path / second.replace("/", "-") / "report.html").read_text()
        for label in labels:
            assert f">{label} · AlexNet" in page


def test_a_report_of_other_runs_is_not_overwritten(directory: Path, tmp_path: Path) -> None:
    runs = [str(write_run(tmp_path / name, curve(make_config(), {1: speed}))) for name, speed in SPEEDS.items()]
    first = ["report", runs[0], str(directory), "-o", str(tmp_path / "out")]
    assert cli.main(first) == 0
    assert cli.main(["report", *runs, "-o", str(tmp_path / "out")]) == 2
    assert cli.main(first) == 0
