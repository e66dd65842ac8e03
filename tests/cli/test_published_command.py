"""``trainscale published``, ``report --with`` and ``compare published:ID`` as a person types them."""

import json
import re
from pathlib import Path

import pytest
from command import trainscale
from compared_runs import write_published_runs

from trainscale import cli

DOCS = Path(__file__).parents[2] / "docs"
CURVE = "nvidia2021-resnet50-pytorch-a100-80gb-tf32"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    write_published_runs(tmp_path)
    return tmp_path


class CommandOutput:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *argv: str, code: int = 0) -> str:
        assert cli.main([*argv]) == code
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> CommandOutput:
    return CommandOutput(capsys)


# ---- the list and a curve


def test_curves_are_listed_and_filtered(folder: Path, command: CommandOutput) -> None:
    text = command.text("published", "--network", "alexnet", "--min-devices", "8", "--year", "2016-2017")
    listed = re.findall(r"^([a-z]+20\d\d-\S+)", text, re.MULTILINE)
    assert "mxnet2016-p2-alexnet-b512" in listed
    assert "tensorflow2017-dgx1-alexnet-b512-real" not in listed  # it ends at 4 devices
    assert len(command.text("published").splitlines()) > 200


def test_a_curve_is_shown_with_its_source(folder: Path) -> None:
    done = trainscale(folder, "published", "mxnet2016-p2-alexnet-b512", columns=80)
    assert (done.returncode, done.stderr) == (0, "")
    assert "135.51×" in done.stdout
    assert "source        Apache MXNet, image classification, Scalability Results" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "https://" not in line) <= 80
    assert "…" not in done.stdout


def test_a_curve_is_drawn(folder: Path, command: CommandOutput) -> None:
    command.text("published", CURVE, "--output", "curve.svg")
    picture = (folder / "curve.svg").read_text()
    assert "published 2021" in picture
    assert "Source: " in picture, "a picture that is passed on names its source"


def test_json_has_the_selected_curves(folder: Path, command: CommandOutput) -> None:
    document = json.loads(command.text("published", "--framework", "chainer", "--json"))
    assert [curve["id"] for curve in document["curves"]] == ["chainermn2017-resnet50"]
    assert (
        json.loads(command.text("published", CURVE, "--json"))["curves"][0]["flags"][0]["name"]
        == "weak-labelled-strong"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            (CURVE, "--output", "ours/run.json/a.png"),
            "--output ours/run.json/a.png: this file cannot be written: ",
        ),
        (("horovod2018-512-vgg16", "--output", "a.svg"), "its source states an efficiency but no speeds"),
    ],
)
def test_a_picture_that_cannot_be_made_is_a_sentence(
    argv: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["published", *argv]) == 2
    assert message in capsys.readouterr().err


# ---- am I normal?


def test_a_laptop_has_no_neighbours(folder: Path, command: CommandOutput) -> None:
    assert "nothing published is near" in command.text("published", "--like", "laptop")
    assert json.loads(command.text("published", "--like", "laptop", "--json"))["series"][0]["verdict"] is None


# ---- beside a run


def test_the_report_shows_curves_beside_a_run(folder: Path, command: CommandOutput) -> None:
    text = command.text("report", "ours", "--with", f"published:{CURVE}", "--normalise", "absolute")
    assert f"published:{CURVE} differs from ResNet-50 · torch · allreduce in" in text
    for name in ("report.html", "comparison_graph.svg", "images_per_sec.svg"):
        assert "A100 · published 2021" in (folder / "ours" / name).read_text()
    assert "## Beside published curves" in (folder / "ours" / "report.md").read_text()
    assert "published" not in (folder / "ours" / "results.csv").read_text()
    command.text("report", "ours")
    assert "published 2021" not in (folder / "ours" / "report.html").read_text()


# ---- as a reference


def test_speeds_are_compared_if_asked(folder: Path, command: CommandOutput) -> None:
    argv = ("compare", "ours", f"published:{CURVE}", "--despite", "data", "--by", "speed", "--json")
    (curve,) = json.loads(command.text(*argv))["curves"]
    assert curve["quantity"] == "speed"
    assert [point["a"]["per_second"] for point in curve["points"]] == [938, 7248]


def test_json_has_efficiencies_and_the_citation(folder: Path, command: CommandOutput) -> None:
    (curve,) = json.loads(command.text("compare", "ours", f"published:{CURVE}", "--despite", "data", "--json"))[
        "curves"
    ]
    assert curve["quantity"] == "efficiency"
    assert curve["a"]["citation"].startswith("NVIDIA DeepLearningExamples")
    (point,) = curve["points"]
    assert point["a"] == {"hosts": 1, "status": "ok", "efficiency": pytest.approx(7248 / 938 / 8), "repeats": None}


# ---- documentation


@pytest.mark.parametrize("flag", ["--with", "--normalise", "--by"])
def test_the_flags_of_other_commands_are_in_the_page(flag: str) -> None:
    assert flag in (DOCS / "published.md").read_text()


def test_every_option_is_in_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["published", "--help"])
    flags = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help", "--debug"}
    for page in ("published.md", "options.md"):
        coded = {word for span in re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()) for word in span.split()}
        assert flags <= coded, page


def test_the_page_has_the_size_of_the_table_and_every_flag() -> None:
    from trainscale.questions.published.curves import SENTENCES, read_curves

    curves, page = read_curves(), (DOCS / "published.md").read_text()
    points, sources = sum(len(curve.points) for curve in curves), len({curve.source for curve in curves})
    assert f"{len(curves)} curves with {points} points of {sources} sources" in page
    assert (
        f"lists, filters and draws {len(curves)} published scaling curves of {sources} sources"
        in (DOCS.parent / "CHANGELOG.md").read_text()
    )
    assert all(f"`{flag}`" in page for flag in SENTENCES)
