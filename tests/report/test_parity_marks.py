"""A comparison whose parity failed is marked so in every table and plot."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from reported import write_outputs
from rich.console import Console

from trainscale.analyse.series import build_series
from trainscale.record.parity import FAILED, PROVEN, UNPROVEN, Check, Verdict
from trainscale.report.table import make_series_table

RECORDS = [
    record
    for framework in ("torch", "jax", "mxnet")
    for record in curve(make_config(framework=framework), {1: 10.0, 2: 19.0})
]
CHECKS = (Check("parameters", 0.0, 0.0), Check("logits, float64", 0.25, 1e-9, "differ by 2.5e-01"))
VERDICTS = [
    Verdict("torch", "alexnet", 224, 1000, "nchw", "cpu", "torch nchw", PROVEN, CHECKS[:1]),
    Verdict("jax", "alexnet", 224, 1000, "nchw", "cpu", "torch nchw", FAILED, CHECKS, "logits differ by 2.5e-01"),
    Verdict("mxnet", "alexnet", 224, 1000, "nchw", "cpu", "torch nchw", UNPROVEN, (), "mxnet could not compute it"),
]
MARK = "PARITY FAILED"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marked")
    write_outputs(folder, make_run(), RECORDS, VERDICTS)
    return folder


def test_every_plot_and_table_is_marked(outputs: Path) -> None:
    assert [series.title for series in build_series(RECORDS, VERDICTS)] == [
        "AlexNet · torch · allreduce",
        "AlexNet · jax · allreduce · PARITY FAILED",
        "AlexNet · mxnet · allreduce · parity unproven",
    ]
    for name in ("comparison_graph.svg", "images_per_sec.svg", "report.html", "results.csv"):
        assert MARK in (outputs / name).read_text(), name
    page = (outputs / "report.html").read_text()
    for proof in ("The same work?", "mxnet could not compute it", "2e-01"):
        assert proof in page


def test_without_a_verdict_about_its_network_a_run_has_no_proof_and_no_mark(tmp_path: Path) -> None:
    other = curve(make_config(framework="jax", image_size=96), {1: 10.0})
    assert build_series(other, VERDICTS)[0].parity is None
    write_outputs(tmp_path, make_run(), RECORDS)
    page = (tmp_path / "report.html").read_text()
    assert "The same work?" not in page
    assert MARK not in page


def test_the_terminal_is_marked_and_says_why() -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(make_series_table(build_series(RECORDS, VERDICTS)))
    text = " ".join(captured.get().split())
    assert MARK in text
    assert "all points: not the same work as torch nchw: logits differ by 2.5e-01" in text
    assert "it is not proven that this is the same work as torch nchw: mxnet could not compute it" in text


def test_the_first_framework_is_not_said_to_differ_from_itself() -> None:
    first = Verdict("torch", "alexnet", 224, 1000, "nchw", "cpu", "torch nchw", UNPROVEN, (), "left out")
    assert first.warning == "it is not proven that this is the same work as in the other series: left out"


def test_machines_read_the_state_in_its_own_column(outputs: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((outputs / "results.csv").read_text())))
    assert [row["parity"] for row in rows[::2]] == [PROVEN, FAILED, UNPROVEN]
    series = json.loads((outputs / "results.json").read_text())["series"]
    assert [line["parity"]["state"] for line in series] == [PROVEN, FAILED, UNPROVEN]
    assert series[1]["parity"]["checks"][1]["difference"] == 0.25
