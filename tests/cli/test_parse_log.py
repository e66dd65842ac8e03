"""``trainscale parse-log`` as a person types it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import trainscale

LOGS = Path(__file__).parents[3] / "shared/data/mxnet_logs"
ORIGINALS = pytest.mark.skipif(not LOGS.is_dir(), reason="MXNet's own logs are not at ../shared/data/mxnet_logs")

MXNET = """\
INFO:root:Epoch[0] Train-accuracy=0.5
INFO:root:Epoch[0] Train-cross-entropy=1.5
INFO:root:Epoch[0] Time cost=10.04
INFO:root:Epoch[0] Validation-accuracy=0.4
INFO:root:Epoch[1] Batch [30]\tSpeed: 59.61 samples/sec\tTrain-accuracy=0.9
INFO:root:Epoch[1] Train-accuracy=0.75
INFO:root:Epoch[2] Train-accuracy=0.8
"""
BENCHMARK = "Model:       resnet50\n10\timages/sec: 133.2 +/- 2.3 (jitter = 7.3)\t7.593\ntotal images/sec: 133.81\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mxnet.log").write_text(MXNET)
    (tmp_path / "tf.log").write_text(BENCHMARK)
    (tmp_path / "notes.txt").write_text("bread, milk\n")
    return tmp_path


def parsed(folder: Path, *argv: str) -> str:
    done = trainscale(folder, "parse-log", *argv)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# ---- the tables of the originals

INCEPTION_2 = {10: ("0.904931", "0.867488"), 20: ("0.953142", "0.873598")}
INCEPTION_4 = {
    10: ("0.867188", "0.837039"),
    20: ("0.931913", "0.869331"),
    30: ("0.959867", "0.874098"),
    40: ("0.975832", "0.888101"),
}
INCEPTION_7 = {
    10: ("0.863264", "0.824479"),
    20: ("0.923930", "0.858333"),
    30: ("0.951104", "0.862540"),
    40: ("0.968971", "0.873658"),
}


@ORIGINALS
@pytest.mark.parametrize(
    ("log", "rows"),
    [("cifar10_incept_2", INCEPTION_2), ("cifar10_incept_4", INCEPTION_4), ("cifar10_incept_7", INCEPTION_7)],
)
def test_the_published_tables_come_out_to_the_last_digit(log: str, rows: dict, tmp_path: Path) -> None:
    lines = [f"| {epoch} | {train} | {valid} |\n" for epoch, (train, valid) in rows.items()]
    table = parsed(tmp_path, "--every", "10", "--columns", "train,valid", str(LOGS / log))
    assert table == f"| epoch | train accuracy | valid accuracy |\n| --- | --- | --- |\n{''.join(lines)}"


@ORIGINALS
def test_five_workers_mean_seconds_are_beside_their_accuracies(tmp_path: Path) -> None:
    table = parsed(tmp_path, "--every", "10", "--op", "max", str(LOGS / "cifar10_incept_4"))
    assert table.startswith("| epoch | train accuracy | valid accuracy | time |\n| --- | --- | --- | --- |\n| 10 | ")
    assert table.endswith("| 40 | 0.976393 | 0.890325 | 10.7 |\n")


# ---- what can be asked for


def test_one_log_is_one_table_and_nothing_else(folder: Path) -> None:
    assert parsed(folder, "mxnet.log") == (
        "| epoch | train accuracy | train cross-entropy | valid accuracy | time | samples/sec |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 1 | 0.500000 | 1.500000 | 0.400000 | 10.0 | – |\n"
        "| 2 | 0.750000 | – | – | – | 59.61 |\n"
        "| 3 | 0.800000 | – | – | – | – |\n"
    )


@pytest.mark.parametrize("form", ["tsv", "none"])
def test_tab_separated_with_chosen_metrics_columns_and_epochs(form: str, folder: Path) -> None:
    argv = ["--metric-names", "accuracy", "--columns", "valid,train", "--every", "2"]
    table = parsed(folder, "mxnet.log", "--format", form, *argv)
    assert table == "epoch\ttrain accuracy\n2\t0.750000\n3\t0.800000\n"


def test_several_logs_have_a_table_each_under_a_heading(folder: Path) -> None:
    text = parsed(folder, "mxnet.log", "tf.log")
    assert re.findall(r"^#.*", text, re.MULTILINE) == ["### mxnet.log", "### tf.log: resnet50"]
    assert text.endswith(
        "\n\n### tf.log: resnet50\n\n"
        "| step | images/sec | +/- | jitter | total_loss |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| 10 | 133.2 | 2.3 | 7.3 | 7.593 |\n"
        "| total | 133.81 | – | – | – |\n"
    )


def test_the_logs_of_one_runs_workers_make_one_table(folder: Path) -> None:
    (folder / "second.log").write_text(BENCHMARK.replace("133.81", "133.83"))
    lines = parsed(folder, "--merge", "--format", "tsv", "tf.log", "second.log").splitlines()
    assert lines[0].split("\t")[:3] == ["step", "workers", "images/sec"]
    assert [line.split("\t")[:3] for line in lines[1:]] == [["10", "2", "266.4"], ["total", "2", "133.82"]]


@pytest.mark.processes
def test_standard_input_is_a_log_too_in_any_encoding(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainscale", "parse-log", "-", "--columns", "train", "--format", "tsv"],
        input=b"\xff\xfe\x00caf\xe9\r\n\x1b[31mEpoch[0] Train-accuracy=0.25\x1b[0m\r\n",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"epoch\ttrain accuracy\n1\t0.250000\n"


def test_the_directory_of_a_run_has_a_table_for_each_trial(folder: Path) -> None:
    epoch = {"epoch": 1, "seconds": 2.0, "images": 100, "train_loss": 0.5, "train_accuracy": 0.9, "valid_loss": 0.6}
    epoch |= {"valid_accuracy": 0.8, "valid_images": 103}
    config = {"framework": "jax", "model": "mnist", "batch": 50, "strategy": "local", "image_size": 28, "classes": 10}
    trial = {"schema": 1, "key": "x-n1-r0", "config": config, "devices": 1, "repeat": 0, "status": "ok"}
    trial |= {"started": "2026-01-01T00:00:00+00:00", "seconds": 9.0, "epochs": [epoch]}
    (folder / "run").mkdir()
    (folder / "run/trials.jsonl").write_text(json.dumps(trial, separators=(",", ":")) + "\n")
    table = parsed(folder, "run")
    assert table.startswith("### Deep MNIST · jax · local · 1 device · repeat 1\n\n| epoch | train accuracy | ")
    assert table.endswith("| 1 | 0.900000 | 0.800000 | 2.0 | 50.00 |\n")
    assert parsed(folder, "run/trials.jsonl") == table


# ---- what is refused


def test_a_file_that_is_no_log_is_named_with_what_is_understood_and_nothing_is_printed(folder: Path) -> None:
    done = trainscale(folder, "parse-log", "mxnet.log", "notes.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trainscale: notes.txt: nothing here is understood; supported are:\n")
    for name in ("MXNet", "trainscale", "tf_cnn_benchmarks", "trials.jsonl"):
        assert name in done.stderr
