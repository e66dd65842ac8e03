"""Questions about runs in Python have the answers of the commands."""

import json
from pathlib import Path

import pytest
from command import trainscale
from factories import curve
from stored_runs import ALLREDUCE, SERVERS, write_run

import trainscale as ts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    both = curve(ALLREDUCE, {1: 100, 2: 190}, 3, 0.01) + curve(SERVERS, {1: 100, 2: 150}, 3, 0.01)
    write_run(tmp_path / "first", both)
    write_run(tmp_path / "second", curve(ALLREDUCE, {1: 100, 2: 160}, 3, 0.01))
    return tmp_path


def printed(folder: Path, *arguments: str, code: int = 0) -> str:
    done = trainscale(folder, *arguments)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_explain_has_the_parts_and_the_text_of_the_command(folder: Path) -> None:
    explanation = ts.explain(ts.load(folder / "first"))
    document = json.loads(printed(folder, "explain", "first", "--json"))
    assert [part.share for part in explanation.parts] == [
        part["share"] for point in document["points"] for part in point["parts"]
    ]
    assert [verdict.partition(": ")[2] for verdict in explanation.verdicts] == [
        f"{point['sentence']}." for point in document["points"]
    ]
    assert explanation.text == printed(folder, "explain", "first")
    assert explanation.verdicts[0].partition(": ")[2] in explanation._repr_markdown_()


def test_best_has_the_choices_of_the_command(folder: Path) -> None:
    best = ts.best(ts.load(folder / "first"), ts.load(folder / "second"), by="efficiency")
    (work,) = json.loads(printed(folder, "best", "first", "second", "--by", "efficiency", "--json"))["works"]
    assert best.by == "efficiency"
    for choice, answer in zip(best.choices, work["answers"], strict=True):
        leader = answer["leader"]
        assert (choice.devices, choice.verdict) == (answer["devices"], answer["verdict"])
        assert choice.configuration == (leader["name"] if leader else None)
        assert (choice.value.mean if choice.value else None) == (leader["value"]["mean"] if leader else None)
    assert best.choices[1].configuration
    assert best.choices[1].configuration in best._repr_markdown_()
    assert best.text == printed(folder, "best", "first", "second", "--by", "efficiency", "--markdown")


def test_compare_has_the_ratios_and_the_gate_of_the_command(folder: Path) -> None:
    one_series = f"{folder}/first:AlexNet · torch · allreduce"
    comparison = ts.compare(one_series, ts.load(folder / "second"), threshold=0.02, devices=[2])
    assert (comparison.verdict, comparison.outcome) == ("slower", "fail")
    (point,) = comparison.points
    assert (point.devices, point.verdict) == (2, "slower")
    assert point.ratio is not None
    assert point.ratio.mean == pytest.approx(160 / 190)
    arguments = ("compare", one_series, str(folder / "second"), "--threshold", "2%", "--devices", "2", "--markdown")
    assert comparison.text == printed(folder, *arguments, code=1)
    assert "regression beyond" in comparison._repr_markdown_()
    without_gate = ts.compare(one_series, folder / "second")
    assert (without_gate.outcome, len(without_gate.points)) == (None, 2)


def test_wrong_arguments_and_what_differs_are_refused(folder: Path) -> None:
    with pytest.raises(ts.InputError, match="unknown criterion 'speed'"):
        ts.best(ts.load(folder / "first"), by="speed")
    with pytest.raises(ts.InputError):
        ts.compare(f"{folder}/first:AlexNet · torch · ps:1", ts.load(folder / "second"))
    with pytest.raises(ts.InputError, match="unknown name 'wether'"):
        ts.compare(ts.load(folder / "first"), ts.load(folder / "second"), despite=["wether"])
