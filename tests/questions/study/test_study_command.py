"""``trainscale study``: what it prints for a run. What it refuses is in tests/cli/wrong_uses.txt."""

import errno
import json
import os
from pathlib import Path

import pytest
from command import call
from factories import failed_record, make_run
from studied_runs import STRONG_CONFIG, STRONG_SPEEDS, WEAK_CONFIG, both_ladders, ladder_records, write_study

from trainscale import cli
from trainscale.questions.study.study import make_measuring_command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_study(tmp_path_factory.mktemp("study") / "run", both_ladders()))


def test_it_prints_a_text_for_a_proposal(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "study", run, "--for", "proposal", "--epochs", "90", "--data-size", "1281167")
    assert (code, err) == (0, "")
    for heading in ("Weak scaling: batch 32 per device", "Strong scaling: batch 64 over all devices", "Method"):
        assert f"\n{heading}\n{'-' * len(heading)}\n" in out
    assert "Efficiency on 8 devices" in out
    assert "90 epochs of 1,281,167 images, 115,305,030 images in all" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_a_size_that_was_not_measured_is_predicted_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weak = {1: 100.0, 2: 196.0, 4: 384.0, 8: 750.0, 16: 1460.0}  # two points on several hosts
    records = [*ladder_records(WEAK_CONFIG, weak), *ladder_records(STRONG_CONFIG, STRONG_SPEEDS)]
    directory = str(write_study(tmp_path / "run", records))
    code, out, err = call(capsys, "study", directory, "--devices", "32", "--epochs", "90", "--data-size", "1281167")
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    for said in (
        "Efficiency on 32 devices",
        "Weak scaling: PREDICTED, not measured: 89 (75-91) % efficiency, 2,842 (2,416-2,927) images/s on 4 nodes.",
        "Strong scaling: not measured on 32 devices, and a prediction would be a guess: only one point",
        "On 32 devices (weak scaling, PREDICTED): ",
        "are predicted (weak scaling, from 1, 2, 4, 8 and 16 devices)",
        "Test on this curve",
    ):
        assert said in text
    assert "none is extrapolated" not in text
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = call(capsys, "study", directory, "--devices", "32", "--format", "json")
    weak_ladder, strong_ladder = json.loads(out)["studies"][0]["ladders"]
    assert weak_ladder["predicted"]["prediction"]["devices"] == 32
    assert "only one point" in strong_ladder["predicted"]["reason"]


def test_it_can_be_written_to_a_file_and_knows_the_size_of_the_data_set(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, "study", run, "-o", str(tmp_path / "study.txt"))
    assert (code, out) == (0, f"{tmp_path / 'study.txt'}: written\n")
    assert (tmp_path / "study.txt").read_text().startswith("Scaling of AlexNet")
    assert call(capsys, "study", run, "-o", str(tmp_path / "study.txt" / "inside"))[0] == 2
    with_data = write_study(tmp_path / "run", both_ladders(), data={"name": "cifar10", "train": 50_000})
    assert "2 epochs of 50,000 images" in call(capsys, "study", str(with_data), "--epochs", "2")[1]


def test_a_full_disk_leaves_the_document_that_was_there(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "study.txt").write_text("whole")
    monkeypatch.setattr(os, "fsync", fail)
    code, _, err = call(capsys, "study", run, "-o", str(tmp_path / "study.txt"))
    assert code == 2
    assert "No space left on device" in err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_one_ladder_whose_largest_size_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The size is the largest with a result, and the command for the other ladder is named."""
    records = [record for record in ladder_records(STRONG_CONFIG, STRONG_SPEEDS) if record.trial.devices < 8]
    directory = write_study(tmp_path / "run", [*records, failed_record(STRONG_CONFIG, 8)])
    _, out, _ = call(capsys, "study", str(directory))
    assert "Efficiency on 4 devices" in out
    assert "Not measured. This command measures it:\n\n  trainscale run -m alexnet:32 --study\n" in out


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("trainscale run -m mnist", "trainscale run -m mnist --study"),
        ("trainscale run --study -m mnist", "trainscale run -m mnist --study"),
        ("trainscale run -m mnist --devices=1,2 --budget 5m -x 4", "trainscale run -m mnist --study"),
        ("trainscale run 'my study.toml' --fresh", "trainscale run 'my study.toml' --study"),
    ],
)
def test_the_command_that_measures_a_study(command: str, expected: str) -> None:
    assert make_measuring_command(make_run(command=command)) == expected
    assert make_measuring_command(make_run(command=command), [8, 1]) == f"{expected} --devices 1,8"


def test_the_plan_of_a_study_says_what_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    argv = ["plan", "-m", "mnist:7", "--study", "--device", "cpu", "--cores-per-device", "1", "--devices", "1,2"]
    assert cli.main([*argv, "--no-witness"]) == 0
    out = capsys.readouterr().out
    assert "  weak: batch per device fixed: mnist 7\n  strong: batch of all devices fixed: mnist 6\n" in out
    assert "allreduce weak " in out
    assert "allreduce strong " in out
    assert "5 rounds over 4 points" in out
