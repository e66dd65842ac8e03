"""Marks in every table and plot: where the ladder leaves its first host; where parity failed."""

import csv
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from factories import curve, make_config, make_run
from reported import print_to_text, write_outputs

from trainscale.analyse.series import build_series
from trainscale.record.parity import FAILED, PROVEN, UNPROVEN, Check, Verdict
from trainscale.record.trial import TrialRecord
from trainscale.report.charts import draw_efficiency, draw_speedup, draw_throughput
from trainscale.report.documents import SeriesTables
from trainscale.report.drawing import VegaSpec, to_svg

SPEEDS = {1: 100.0, 2: 190.0, 4: 340.0, 8: None}


def on_hosts(records: list[TrialRecord], devices_per_host: int) -> list[TrialRecord]:
    return [replace(record, hosts=math.ceil(record.trial.devices / devices_per_host)) for record in records]


LADDER = on_hosts(curve(make_config(), SPEEDS), 2)
ALONE = curve(make_config(), SPEEDS)
# Servers on a host of their own: two hosts already with one worker.
APART = [
    replace(record, hosts=record.hosts + 1)
    for record in on_hosts(curve(make_config(strategy="ps", servers=1), {1: 50.0, 2: 90.0}), 2)
]
CHARTS = pytest.mark.parametrize("chart", [draw_speedup, draw_throughput, draw_efficiency])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    write_outputs(folder, make_run(), LADDER)
    return folder


@pytest.fixture(scope="module")
def outputs_on_one_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one-host")
    write_outputs(folder, make_run(), ALONE)
    return folder


def table(records: list[TrialRecord], width: int = 120) -> list[str]:
    return print_to_text(SeriesTables(build_series(records)), width).splitlines()


def texts(spec: VegaSpec) -> list[str]:
    svg = ElementTree.fromstring(to_svg(spec, standalone=True))
    return ["".join(text.itertext()) for text in svg.iter("{http://www.w3.org/2000/svg}text")]


@CHARTS
def test_every_chart_has_a_line_between_one_host_and_several_with_names_above_the_plot(chart) -> None:
    spec = chart(build_series(LADDER))
    (line,) = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule" and "y2" not in layer["encoding"]]
    assert spec["datasets"][line["data"]["name"]] == [{"devices": pytest.approx(math.sqrt(2 * 4))}]
    svg = to_svg(spec, standalone=True)
    lines = re.findall(r'<line transform="translate\(([\d.]+),\s?0\)" x2="0" y2="420" stroke="#8A8F98"', svg)
    crosses_and_points = re.findall(r'roledescription="point"[^>]*transform="translate\(([\d.]+),', svg)
    two, four = sorted({float(x) for x in crosses_and_points})[1:3]
    assert [float(x) for x in lines] == [pytest.approx((two + four) / 2)]
    names = re.findall(r'translate\([\d.]+,-[\d.]+\)"[^>]*>(1 host|2–4 hosts)<', svg)
    assert names == ["1 host", "2–4 hosts"], "above: their y is negative"


@CHARTS
def test_a_chart_in_which_nothing_spans_hosts_says_nothing_of_hosts(chart) -> None:
    spec = chart(build_series(ALONE))
    assert not any("host" in text for text in texts(spec))
    assert "Hosts" not in json.dumps(spec["layer"])
    assert not any("1 host" in text for text in texts(chart(build_series(APART))))


def test_a_series_that_is_on_several_hosts_throughout_is_named_in_the_notes() -> None:
    notes = " ".join(texts(draw_speedup(build_series([*LADDER, *APART]))))
    assert "On several hosts at every point: AlexNet · torch · ps:1." in notes


def test_a_mark_beyond_the_boundary_tells_its_hosts(outputs: Path) -> None:
    svg = (outputs / "comparison_graph.svg").read_text()
    assert "3.40 · 340.00 images/s · 4 devices on 2 hosts · " in svg
    assert "1.90 · 190.00 images/s · 2 devices · " in svg
    assert "8 devices on 4 hosts: out of memory" in svg


def test_the_terminal_has_a_column_and_a_line_between_the_rows() -> None:
    lines = table(LADDER)
    (head,) = [line for line in lines if "devices  hosts" in line]
    rows = [line.split()[:2] for line in lines if re.match(r" +\d", line)]
    assert rows == [["1", "1"], ["2", "1"], ["4", "2"], ["8", "4"]]
    (rule,) = [number for number, line in enumerate(lines) if set(line) == {"┄"}]
    assert lines[rule - 1].split()[0] == "2"
    assert lines[rule + 1].split()[0] == "4"
    assert head
    alone = "\n".join(table(ALONE))
    assert "hosts" not in alone
    assert "┄" not in alone


def test_servers_on_hosts_of_their_own_are_said_to_be_there() -> None:
    config = make_config(strategy="ps", servers=2, server_placement="apart")
    records = [replace(record, hosts=3) for record in curve(config, {1: 10.0})]
    assert "2 servers on hosts of their own" in "\n".join(table(records, 160))
    assert "2 servers on devices of their own" in "\n".join(table(curve(config, {1: 10.0}), 160))


def test_the_report_has_a_column_and_a_line_only_where_something_spans_hosts(
    outputs: Path, outputs_on_one_host: Path
) -> None:
    page = (outputs / "report.html").read_text()
    assert page.count("<th>hosts</th>") == 1
    (marked,) = re.findall(r'<tr class="boundary"[^>]*>\s*<td class="key">(\d+)</td><td>(\d+)</td>', page)
    assert marked == ("4", "2")
    assert "on 4 devices on 2 hosts" in page
    page = (outputs_on_one_host / "report.html").read_text()
    assert "<th>hosts</th>" not in page
    assert 'class="boundary"' not in page


def test_machines_read_it_in_numbers(outputs: Path, outputs_on_one_host: Path) -> None:
    rows = csv.DictReader((outputs / "results.csv").read_text().splitlines())
    assert [(row["devices"], row["hosts"]) for row in rows] == [("1", "1"), ("2", "1"), ("4", "2"), ("8", "4")]
    (series,) = json.loads((outputs / "results.json").read_text())["series"]
    assert series["host_boundary"] == {
        "last_on_one_host": 2, "first_on_several": 4, "fewest_hosts": 2, "most_hosts": 4,
    }  # fmt: skip
    assert series["headline"].startswith("4 devices on 2 hosts give 3.40×")
    (series,) = json.loads((outputs_on_one_host / "results.json").read_text())["series"]
    assert series["host_boundary"] is None


# ---- a comparison whose parity failed is marked so in every table and plot

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
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marked")
    write_outputs(folder, make_run(), RECORDS, VERDICTS)
    return folder


def test_every_plot_and_table_is_marked(marked: Path) -> None:
    assert [series.title for series in build_series(RECORDS, VERDICTS)] == [
        "AlexNet · torch · allreduce",
        "AlexNet · jax · allreduce · PARITY FAILED",
        "AlexNet · mxnet · allreduce · parity unproven",
    ]
    for name in ("comparison_graph.svg", "images_per_sec.svg", "report.html", "results.csv"):
        assert MARK in (marked / name).read_text(), name
    page = (marked / "report.html").read_text()
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
    text = " ".join(print_to_text(SeriesTables(build_series(RECORDS, VERDICTS))).split())
    assert MARK in text
    assert "all points: not the same work as torch nchw: logits differ by 2.5e-01" in text
    assert "it is not proven that this is the same work as torch nchw: mxnet could not compute it" in text


def test_the_first_framework_is_not_said_to_differ_from_itself() -> None:
    first = Verdict("torch", "alexnet", 224, 1000, "nchw", "cpu", "torch nchw", UNPROVEN, (), "left out")
    assert first.warning == "it is not proven that this is the same work as in the other series: left out"


def test_machines_read_the_state_in_its_own_column(marked: Path) -> None:
    rows = list(csv.DictReader((marked / "results.csv").read_text().splitlines()))
    assert [row["parity"] for row in rows[::2]] == [PROVEN, FAILED, UNPROVEN]
    series = json.loads((marked / "results.json").read_text())["series"]
    assert [line["parity"]["state"] for line in series] == [PROVEN, FAILED, UNPROVEN]
    assert series[1]["parity"]["checks"][1]["difference"] == 0.25
