"""``trainscale run`` from the command line to the files, in real processes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from command import SUPPORT, trainscale

pytestmark = pytest.mark.framework

QUICK = ("--steps", "5", "--warmup", "2", "--repeats", "2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = trainscale(folder, "run", "--models", "Mnist:8", *QUICK, "-o", "out", forks_ranks=True)
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


def test_a_run_ends_with_a_table_and_one_line_that_says_where_everything_is(finished: Path) -> None:
    stdout = (finished / "stdout").read_text()
    assert "Deep MNIST" in stdout
    assert stdout.rstrip().splitlines()[-1].startswith("results: out/")
    for name in ("report.html", "comparison_graph.svg", "images_per_sec.svg", "results.csv", "results.json"):
        assert (finished / "out" / name).stat().st_size > 0


def test_csv_files_are_those_of_the_seeds(finished: Path) -> None:
    rows = list(csv.reader((finished / "out" / "csv_torch" / "mnist_b8.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(float(row[1]) > 0 for row in rows)


def test_the_journal_keeps_raw_step_times_of_every_rank(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "out" / "trials.jsonl").read_text().splitlines()]
    assert len(records) == 4
    for record in records:
        assert len(record["ranks"]) == record["devices"]
        assert all(len(rank["step_seconds"]) == 5 for rank in record["ranks"])
        assert record["parameters"] == 3_274_634
        assert record["notes"] == []


def test_repeats_are_interleaved_over_the_ladder(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "out" / "trials.jsonl").read_text().splitlines()]
    assert [(record["repeat"], record["devices"]) for record in records] == [(0, 1), (0, 2), (1, 2), (1, 1)]


def test_the_same_command_again_measures_nothing_and_shows_the_results(finished: Path) -> None:
    before = (finished / "out" / "trials.jsonl").read_bytes()
    done = trainscale(finished, "run", "--model", "mnist", "-b", "8", *QUICK, "-o", "out")  # another spelling of it
    assert done.returncode == 0, done.stderr
    assert "all 4 trials are in the journal already" in done.stdout
    assert "Deep MNIST" in done.stdout
    assert (finished / "out" / "trials.jsonl").read_bytes() == before


def test_report_writes_the_outputs_again_from_the_journal(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.json", "trials.jsonl"):
        shutil.copy(finished / "out" / name, copy / name)
    done = trainscale(tmp_path, "report", "copy")
    assert done.returncode == 0, done.stderr
    for name in ("results.csv", "comparison_graph.svg", "csv_torch/mnist_b8.csv"):
        assert (copy / name).read_bytes() == (finished / "out" / name).read_bytes()


@pytest.mark.slow
def test_an_experiment_file_with_a_users_own_network_and_flags_that_win(tmp_path: Path) -> None:
    shutil.copy(SUPPORT / "nets.py", tmp_path / "nets.py")
    (tmp_path / "mine.toml").write_text(
        'models = ["nets:LooksAtValues:4"]\nstrategies = ["ps:2", "ps-async", "sharded", "independent"]\n'
        "image_size = 16\nclasses = 10\n"
        "warmup = 2\nsteps = 3\nrepeats = 9\nmax_devices = 2\n"
    )
    done = trainscale(tmp_path, "run", "mine.toml", "--repeats", "1", "-o", "out")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(results["series"]) == 4
    assert len((tmp_path / "out" / "trials.jsonl").read_text().splitlines()) == 8


@pytest.mark.slow
def test_a_point_that_fails_is_a_row_and_the_run_goes_on(tmp_path: Path) -> None:
    shutil.copy(SUPPORT / "nets.py", tmp_path / "nets.py")
    done = trainscale(
        tmp_path, "run", "--models", "nets:raises:4,mnist:4", "--strategies", "allreduce", "--devices", "2",
        *QUICK, "--image-size", "28", "--classes", "10", "-o", "out",
    )  # fmt: skip
    assert done.returncode == 1
    assert "does not like this image" in done.stdout
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert {row["model"]: row["status"] for row in rows} == {"nets:raises": "crash", "mnist": "ok"}


@pytest.mark.slow
def test_a_budget_measures_every_point_and_takes_as_many_steps_as_fit(tmp_path: Path) -> None:
    done = trainscale(tmp_path, "run", "--models", "mnist:8", "--budget", "30s", "-o", "out")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert {record["devices"] for record in records} == {1, 2}  # how often depends on the machine; see test_order.py
    assert all(3 <= record["steps"] <= 100 for record in records)


@pytest.mark.slow
def test_strong_scaling_divides_the_batch_and_is_labelled(tmp_path: Path) -> None:
    done = trainscale(tmp_path, "run", "--models", "mnist:8", "--scaling", "strong", *QUICK, "-o", "out")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert [(row["devices"], row["batch_per_device"], row["global_batch"]) for row in rows] == [
        ("1", "8", "8"),
        ("2", "4", "8"),
    ]
    assert {row["scaling"] for row in rows} == {"strong"}
    assert "strong" in done.stdout


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no_such_module:build", "no_such_module"),
        ("nets:no_such_function", "no_such_function"),
        ("nets:not_a_module", "not a torch.nn.Module"),
        ("torchvision:resnet18", "torchvision"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_before_anything_is_written(
    tmp_path: Path, model: str, message: str
) -> None:
    shutil.copy(SUPPORT / "nets.py", tmp_path / "nets.py")
    done = trainscale(tmp_path, "run", "--models", model, *QUICK, "-o", "out", forks_ranks=True)
    if model.startswith("torchvision") and done.returncode == 0:
        pytest.skip("torchvision is installed here")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()
