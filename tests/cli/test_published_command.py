"""``trainscale published``, ``report --with`` and ``compare published:ID`` as a person types them."""

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


def test_a_curve_is_shown_with_its_source(folder: Path) -> None:
    done = trainscale(folder, "published", "mxnet2016-p2-alexnet-b512", columns=80)
    assert (done.returncode, done.stderr) == (0, "")
    assert "135.51×" in done.stdout
    assert "source        Apache MXNet, image classification, Scalability Results" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "https://" not in line) <= 80
    assert "…" not in done.stdout


def test_a_curve_is_drawn(folder: Path) -> None:
    assert cli.main(["published", CURVE, "--output", "curve.svg"]) == 0
    picture = (folder / "curve.svg").read_text()
    assert "published 2021" in picture
    assert "Source: " in picture, "a picture that is passed on names its source"


def test_the_report_shows_curves_beside_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "ours", "--with", f"published:{CURVE}", "--normalise", "absolute"]) == 0
    printed = capsys.readouterr()
    assert f"published:{CURVE} differs from ResNet-50 · torch · allreduce in" in printed.out
    assert printed.err == ""
    for name in ("report.html", "comparison_graph.svg", "images_per_sec.svg"):
        assert "A100 · published 2021" in (folder / "ours" / name).read_text()
    assert "## Beside published curves" in (folder / "ours" / "report.md").read_text()
    assert "published" not in (folder / "ours" / "results.csv").read_text()
    assert cli.main(["report", "ours"]) == 0
    assert "published 2021" not in (folder / "ours" / "report.html").read_text()


def test_every_option_is_in_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["published", "--help"])
    flags = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help", "--debug"}
    for page in ("published.md", "options.md"):
        coded = {word for span in re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()) for word in span.split()}
        assert flags <= coded, page
    assert all(flag in (DOCS / "published.md").read_text() for flag in ("--with", "--normalise", "--by"))


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
