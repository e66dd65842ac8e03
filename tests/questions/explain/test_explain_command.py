"""``trainscale explain``: the answer, and what is said where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import failed_record
from planted import run, small_config, trials

from trainscale import cli
from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord

CONFIG = small_config()


def journal(
    folder: Path, records: list[TrialRecord], command: str = "trainscale run --models mnist:64", **series: int
) -> str:
    with open_journal(folder, RunInfo({"series": [series]}, {"command": command})) as opened:
        for record in records:
            opened.append(record)
    return str(folder)


def explain(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["explain", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_names_the_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, journal(tmp_path / "run", run(CONFIG, 0.06, 0.09, 0.1)))
    assert (code, err) == (0, "")
    assert "is contention" in out


def test_json_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = journal(tmp_path / "run", run(CONFIG, 0.06, 0.09, 0.1))
    assert json.loads(explain(capsys, folder, "--json")[1])["points"][0]["verdict"] == "contention"
    assert explain(capsys, folder, "--markdown")[1].startswith("## ")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("trainscale run -m mnist:64", "trainscale run -m mnist:64 --explain"),
        ("trainscale run --explain -m mnist", "trainscale run --explain -m mnist"),
    ],
)
def test_it_says_which_command_measures_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, hint: str
) -> None:
    records = [*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)]
    _, out, _ = explain(capsys, journal(tmp_path / "run", records, command))
    assert out.endswith(f"This command measures what is missing:\n  {hint}\n")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (
            "trainscale run -o runs/a -m mnist:64 --epochs 3 --until-accuracy=0.9 --repeats 3",
            "trainscale run -m mnist:64 --repeats 3 --explain",
        ),
        (
            "trainscale run mnist.toml",
            "trainscale run mnist.toml --explain  # without epochs, until_accuracy and search in its file",
        ),
    ],
)
def test_a_run_with_epochs_is_explained_by_a_run_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, hint: str
) -> None:
    """`run` refuses --explain together with --epochs."""
    records = [*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)]
    _, out, _ = explain(capsys, journal(tmp_path / "run", records, command, epochs=3))
    assert out.endswith(f"This command measures what is missing:\n  {hint}\n")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no trial of this run has finished"),
        ([failed_record(CONFIG, 2)], "every trial of this run failed"),
        (trials(CONFIG, 1, 0.05), "this run has one device only"),
        (trials(small_config(strategy="independent"), 2, 0.05), "only synchronous strategies are explained"),
    ],
)
def test_a_run_that_cannot_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records: list[TrialRecord], message: str
) -> None:
    code, out, err = explain(capsys, journal(tmp_path / "run", records))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_no_such_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = explain(capsys, str(tmp_path / "nowhere"))
    assert code == 2
    assert "no run was recorded here" in err


def test_json_and_markdown_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = explain(capsys, str(tmp_path), "--json", "--markdown")
    assert code == 2
    assert "not allowed with" in err
