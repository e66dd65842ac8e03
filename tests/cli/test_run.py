"""``trainscale run`` from the command line to the files, in real processes."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import SUPPORT, trainscale

from trainscale.worker.config import ALLOCATORS

pytestmark = pytest.mark.framework

QUICK = ("--steps", "5", "--warmup", "2", "--repeats", "2")
AGAIN = ("run", "--model", "mnist", "-b", "8", *QUICK, "-o", "out")  # another spelling of the same


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = trainscale(folder, "run", "--models", "Mnist:8", *QUICK, "-o", "out", "--json", forks_ranks=True)
    assert done.returncode == 0, done.stderr
    (folder / "events").write_text(done.stdout)
    return folder


def read_events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events").read_text().splitlines()]


def test_json_prints_an_event_a_line_and_nothing_else(finished: Path) -> None:
    events = read_events(finished)
    kinds = [event["event"] for event in events]
    assert [kind for kind in kinds if kind in ("trial-begins", "trial-ends")] == ["trial-begins", "trial-ends"] * 4
    assert "trial-moves" in kinds
    first = next(event for event in events if event["event"] == "run-begins")
    assert (first["schema"], first["directory"], first["trials"], first["planned_trials"]) == (1, "out", 0, 4)
    configs = {point["config_key"]: point["config"] for point in first["points"]}
    for number, event in enumerate((event for event in events if event["event"] == "trial-ends"), 1):
        assert event["status"] == "ok"
        assert event["samples_per_second"] > 0
        if number <= 2:  # the first repeat of a point
            assert event["point"]["mean"] == pytest.approx(event["samples_per_second"])
        assert event["trials"] == number
        assert configs[event["config_key"]]["model"] == "mnist"
    assert events[-1]["event"] == "run-ends"
    assert (events[-1]["directory"], events[-1]["exit_code"]) == ("out", 0)
    assert all({"event", "time"} <= event.keys() for event in events)


def test_a_run_ends_with_a_table_its_verdict_and_one_line_that_says_where_everything_is(finished: Path) -> None:
    before = (finished / "out" / "trials.jsonl").read_bytes()
    done = trainscale(finished, *AGAIN)
    assert done.returncode == 0, done.stderr
    assert "all 4 trials are in the journal already" in done.stdout
    assert "Deep MNIST" in done.stdout
    lines, verdicts = done.stdout.splitlines(), read_events(finished)[-1]["verdicts"]
    assert len(verdicts) == 1
    assert lines[-2] == verdicts[0]
    assert lines[-1].startswith("results: out/")
    assert (finished / "out" / "trials.jsonl").read_bytes() == before
    for name in ("report.html", "comparison_graph.svg", "images_per_sec.svg", "results.csv", "results.json"):
        assert (finished / "out" / name).stat().st_size > 0


def test_csv_files_are_those_of_the_seeds(finished: Path) -> None:
    rows = list(csv.reader((finished / "out" / "csv_torch" / "mnist_b8.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(float(row[1]) > 0 for row in rows)


def test_repeats_are_interleaved_over_the_ladder_and_the_journal_keeps_raw_step_times(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "out" / "trials.jsonl").read_text().splitlines()]
    assert [(record["repeat"], record["devices"]) for record in records] == [(0, 1), (0, 2), (1, 2), (1, 1)]
    for record in records:
        assert len(record["ranks"]) == record["devices"]
        assert all(len(rank["step_seconds"]) == 5 for rank in record["ranks"])
        assert record["parameters"] == 3_274_634
        assert record["notes"] == []


def test_quiet_prints_the_directory(finished: Path) -> None:
    done = trainscale(finished, *AGAIN, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


def test_a_run_ends_with_lines_that_the_patterns_of_reframe_and_jube_read(finished: Path) -> None:
    done = trainscale(finished, *AGAIN, "--summary-line")
    lines = done.stdout.partition("(open report.html")[2].splitlines()[1:]
    values = {match[1]: (match[2], match[3]) for line in lines if (match := re.fullmatch(r"(\S+): (\S+) (\S+)", line))}
    assert len(values) == len(lines) == 2 + 2 * 4
    assert (values["trials"], values["failed_trials"]) == (("4", "trials"), ("0", "trials"))
    assert values["torch_mnist_b8.n2.images_per_second"][1] == "images/s"
    assert float(values["torch_mnist_b8.n2.images_per_second"][0]) > 0
    assert values["torch_mnist_b8.n1.efficiency"] == ("100", "%")


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


# ---- --allocator: what the ranks have, and what the run records

ONE_TRIAL = ("--models", "mnist:4", "--devices", "1", "--steps", "2", "--warmup", "2", "--repeats", "1", "-o", "out")


def measured(folder: Path, *flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what run.json says about the allocator, and the trial's record."""
    done = trainscale(folder, "run", *ONE_TRIAL, *flags)
    assert done.returncode == 0, done.stderr
    (line,) = (folder / "out" / "trials.jsonl").read_text().splitlines()
    return json.loads((folder / "out" / "run.json").read_text())["provenance"]["allocator"], json.loads(line)


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD", *ALLOCATORS["tuned"]):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_variables")
def test_ranks_have_the_tuned_settings_except_where_the_host_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "131072")
    provenance, record = measured(tmp_path)
    assert record["allocator"] == {**ALLOCATORS["tuned"], "MALLOC_TOP_PAD_": "131072"}
    assert provenance == {"setting": "tuned", **record["allocator"]}
    assert "allocator" not in record["config"]


@pytest.mark.usefixtures("no_variables")
def test_ranks_have_the_systems_settings_on_request_and_that_is_another_run(tmp_path: Path) -> None:
    provenance, record = measured(tmp_path, "--allocator", "system")
    assert record["allocator"] == {}
    assert provenance == {"setting": "system"}
    assert record["config"]["allocator"] == "system"
    refused = trainscale(tmp_path, "run", *ONE_TRIAL)
    assert refused.returncode == 2
    assert "allocator" in refused.stderr
