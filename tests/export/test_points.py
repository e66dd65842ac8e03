"""Points for Prometheus, Extra-P, ReFrame and JUBE."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from factories import curve, failed_record, make_config, make_record, make_run
from prometheus_client.parser import text_string_to_metric_families
from stored_runs import ALLREDUCE, two_series, write_run

from trainscale.errors import InputError
from trainscale.export.base import Destination
from trainscale.export.extra_p import ExtraPExporter
from trainscale.export.prometheus import PrometheusExporter
from trainscale.export.reframe_test import ReframeExporter
from trainscale.export.stored_run import StoredRun, read_stored_run
from trainscale.export.summary_lines import list_summary_lines


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return read_stored_run(write_run(tmp_path / "first", two_series()))


# ---- Prometheus


def samples_of(runs: list[StoredRun], name: str) -> dict[tuple[str, str], float]:
    """What Prometheus' own reader finds: values by series and devices, or by run and status."""
    values = {}
    for family in text_string_to_metric_families(PrometheusExporter().text(runs)):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            if sample.name == name:
                labels = sample.labels
                values[labels.get("series", labels["run"]), labels.get("devices", labels.get("status", ""))] = (
                    sample.value
                )
    return values


def test_prometheus_reads_every_point_with_its_labels(run: StoredRun) -> None:
    allreduce, servers = "AlexNet · torch · allreduce", "AlexNet · torch · ps:1"
    speeds = samples_of([run], "trainscale_images_per_second")
    assert speeds == {
        (allreduce, "1"): pytest.approx(100),
        (allreduce, "2"): pytest.approx(190),
        (allreduce, "4"): pytest.approx(300),
        (servers, "1"): pytest.approx(100),
        (servers, "2"): pytest.approx(150),
    }
    assert samples_of([run], "trainscale_efficiency")[allreduce, "2"] == pytest.approx(0.95)
    low, high = (samples_of([run], f"trainscale_images_per_second_{end}")[allreduce, "2"] for end in ("low", "high"))
    assert low < 190 < high


def test_prometheus_counts_trials_by_status(run: StoredRun) -> None:
    assert samples_of([run], "trainscale_trials") == {("first", "ok"): 15, ("first", "oom"): 3}


def test_prometheus_has_each_metric_once_for_all_runs(run: StoredRun, tmp_path: Path) -> None:
    other = read_stored_run(write_run(tmp_path / 'a "quoted" \\ name', curve(ALLREDUCE, {1: 50})))
    text = PrometheusExporter().text([run, other])
    assert text.count("# TYPE trainscale_images_per_second gauge\n") == 1
    assert samples_of([run, other], "trainscale_trials")['a "quoted" \\ name', "ok"] == 1


# ---- Extra-P


def test_extra_p_has_all_repeats_of_every_point(tmp_path: Path) -> None:
    run = read_stored_run(write_run(tmp_path / "run", curve(ALLREDUCE, {1: 100, 2: 200, 4: 320}, 2)))
    lines = ExtraPExporter().export([run], Destination()).splitlines()
    assert lines[:5] == [
        "PARAMETER devices",
        "POINTS 1 2 4",
        "",
        "REGION AlexNet · torch · allreduce",
        "METRIC step_device_seconds",
    ]
    data = [list(map(float, line.split()[1:])) for line in lines if line.startswith("DATA ")]
    seconds = [[0.32] * 2, [0.32] * 2, [0.4] * 2]
    devices = [[0.32] * 2, [0.64] * 2, [1.6] * 2]
    assert data == [pytest.approx(values) for values in (*devices, *seconds)]


def test_extra_p_writes_a_file_for_each_ladder(run: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 different ladders; valid with -o FILE"):
        ExtraPExporter().export([run], Destination())
    printed = ExtraPExporter().export([run], Destination(str(tmp_path / "steps.txt")))
    assert printed == f"{tmp_path}/steps.txt: 1 series\n{tmp_path}/steps-2.txt: 1 series\n"
    assert "POINTS 1 2 4\n" in (tmp_path / "steps.txt").read_text()
    assert "POINTS 1 2\n" in (tmp_path / "steps-2.txt").read_text()


def test_extra_p_refuses_runs_without_a_result(tmp_path: Path) -> None:
    run = read_stored_run(write_run(tmp_path / "run", [failed_record()]))
    with pytest.raises(InputError, match="no trial of these runs has a result"):
        ExtraPExporter().export([run], Destination())


# ---- lines for ReFrame and JUBE


def test_summary_lines_have_a_key_a_number_and_a_unit(run: StoredRun) -> None:
    lines = [str(line) for line in list_summary_lines(run.series, run.records)]
    assert lines[:6] == [
        "trials: 18 trials",
        "failed_trials: 3 trials",
        "torch_alexnet_b32_allreduce.n1.images_per_second: 100 images/s",
        "torch_alexnet_b32_allreduce.n1.step_time: 320 ms",
        "torch_alexnet_b32_allreduce.n1.speedup: 1 times",
        "torch_alexnet_b32_allreduce.n1.efficiency: 100 %",
    ]
    assert "torch_alexnet_b32_allreduce.n2.efficiency: 95 %" in lines
    assert not any("ps1.n4" in line for line in lines)


def test_the_patterns_for_jube_in_the_docs_read_the_lines(run: StoredRun) -> None:
    """JUBE replaces its variables by these expressions and searches the output."""
    variables = {"$jube_pat_int": r"([+-]?\d+)", "$jube_pat_fp": r"([+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)"}
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (block,) = re.findall(r"```xml\n(<patternset.*?</patternset>)", page, re.DOTALL)
    lines = "\n".join(str(line) for line in list_summary_lines(run.series, run.records))
    values = {}
    for pattern in ElementTree.fromstring(block):
        expression = pattern.text or ""
        for name, text in variables.items():
            expression = expression.replace(name, text)
        values[pattern.get("name")] = re.findall(expression, lines)
    assert values == {"failed": ["3"], "speed2": ["190", "150"], "efficiency2": ["95", "75"]}


def test_no_key_is_there_twice_and_none_needs_quoting(tmp_path: Path) -> None:
    configs = [make_config(model=model, strategy=s) for model in ("a:b", "a_b") for s in ("allreduce", "local")]
    run = read_stored_run(write_run(tmp_path / "run", [make_record(config) for config in configs]))
    lines = [str(line) for line in list_summary_lines(run.series, run.records)]
    matches = [re.fullmatch(r"([\w.-]+): (\S+) (\S+)", line) for line in lines]
    assert all(matches)
    assert len({match[1] for match in matches if match}) == len(lines) == 2 + 4 * 4


def test_the_reframe_test_repeats_the_command_and_refers_to_every_speed(run: StoredRun, tmp_path: Path) -> None:
    info = make_run(command="trainscale run --models 'a b:32' --fresh")
    other = read_stored_run(write_run(tmp_path / "1 more", curve(ALLREDUCE, {1: 50}), info))
    text = ReframeExporter().text([run, other])
    compile(text, "check.py", "exec")
    assert 'executable_opts = ["run", "--models", "alexnet:32", "--summary-line", "--fresh"]' in text
    assert """["run", "--models", "'a b:32'", "--summary-line", "--fresh"]""" in text
    assert '"torch_alexnet_b32_allreduce.n2.images_per_second": (190, -0.05, None, "images/s"),' in text
    assert re.findall(r"^class (\w+)", text, re.MULTILINE) == ["TrainscaleFirst", "Trainscale1More"]
