"""What is understood of logs, on small ones written here."""

import json
import math
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from factories import make_record

from trainscale.analyse.logs import MAXIMUM, EpochRow, Section, read_log
from trainscale.errors import InputError
from trainscale.record.trial import CRASH, SCHEMA, Epoch, Failure


def read(text: str, **options: object) -> list[Section]:
    return read_log(text.splitlines(keepends=True), "some.log", **options)  # type: ignore[arg-type]


def epochs(text: str, **options: object) -> tuple[EpochRow, ...]:
    (section,) = read(text, **options)
    return section.epochs


# ---- MXNet

TWO_WORKERS = """\
2015-11-09 10:00:00,000 Node[0] Epoch[0] Train-accuracy=0.500000
2015-11-09 10:00:00,001 Node[1] Epoch[0] Train-accuracy=0.700000
2015-11-09 10:00:00,002 Node[0] Epoch[0] Time cost=10.0
2015-11-09 10:00:00,003 Node[1] Epoch[0] Time cost=12.0
2015-11-09 10:00:00,004 Node[1] Epoch[0] Validation-accuracy=0.4
2015-11-09 10:00:00,005 Node[0] Epoch[0] Validation-accuracy=0.6
"""


BY_ANYBODY = TWO_WORKERS.replace("Node[0] ", "").replace("Node[1] ", "INFO:root:")
SEVERAL_EPOCHS = (
    "Epoch[1] Train-accuracy=0.8\nEpoch[1] Time cost=9\nEpoch[1] Time cost=10\nEpoch[3] Validation-accuracy=0.75\n"
)
METRICS = (
    "Epoch[0] Train-accuracy=0.5\nEpoch[0] Train-top_k_accuracy_5=0.9\nEpoch[0] Train-cross-entropy=1e-05\n"
    "Epoch[0] Validation-multi-accuracy_0=1\n"
)
COLOURS = "\x1b[32mINFO:root:\x1b[0mEpoch[0] \x1b[1mTrain-accuracy=0.5\x1b[0m\r\n\ufffd\x00Epoch[0] Time cost=3.5\r\n"


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        (TWO_WORKERS, {}, [EpochRow(1, {"accuracy": 0.6}, {"accuracy": 0.5}, 11.0)]),
        (BY_ANYBODY, {}, [EpochRow(1, {"accuracy": 0.6}, {"accuracy": 0.5}, 11.0)]),
        (TWO_WORKERS, {"reduce": MAXIMUM}, [EpochRow(1, {"accuracy": 0.7}, {"accuracy": 0.6}, 11.0)]),
        (SEVERAL_EPOCHS, {}, [EpochRow(2, {"accuracy": 0.8}, {}, 9.5), EpochRow(4, {}, {"accuracy": 0.75})]),
        (
            METRICS,
            {},
            [EpochRow(1, {"accuracy": 0.5, "top_k_accuracy_5": 0.9, "cross-entropy": 1e-5}, {"multi-accuracy_0": 1.0})],
        ),
        (
            "INFO:root:Epoch[0] Train-accuracy=0.500000INFO:root:Epoch[0] Train-accuracy=0.700000\n",
            {},
            [EpochRow(1, {"accuracy": 0.6})],
        ),
        # What Speedometer says of the last batches is not the epoch's accuracy
        (
            "Epoch[0] Batch [30]\tSpeed: 59.61 samples/sec\tTrain-accuracy=0.001000\n",
            {},
            [EpochRow(1, samples_per_second=59.61)],
        ),
        (COLOURS, {}, [EpochRow(1, {"accuracy": 0.5}, seconds=3.5)]),
    ],
    ids=["averages", "nameless workers", "largest", "epochs", "metrics", "one line", "Speedometer", "colours"],
)
def test_the_epochs_of_all_workers_are_rows(text: str, options: dict[str, str], rows: list[EpochRow]) -> None:
    for found, row in zip(epochs(text, **options), rows, strict=True):
        assert (found.epoch, found.seconds) == (row.epoch, row.seconds)
        assert (dict(found.train), dict(found.valid)) == (pytest.approx(row.train), pytest.approx(row.valid))
        assert found.samples_per_second == pytest.approx(row.samples_per_second)


def test_a_worker_that_says_nan_does_not_hide_the_largest() -> None:
    text = "Epoch[0] Train-accuracy=nan\nEpoch[0] Train-accuracy=0.5\nEpoch[1] Train-accuracy=nan\n"
    first, second = epochs(text, reduce=MAXIMUM)
    assert first.train["accuracy"] == 0.5
    assert math.isnan(second.train["accuracy"])
    assert math.isnan(epochs(text)[0].train["accuracy"])


SPEEDS = [(0, 10, 40.0), (1, 10, 20.0), (1, 20, 20.0), (0, 20, 60.0)]


@pytest.mark.parametrize("form", ["Batch [{0}]", "Batch [{1}-{0}]"])
@pytest.mark.parametrize("head", ["Node[{}] ", "[worker {} host] INFO:root:", "INFO:root:"])
def test_speeds_are_those_of_all_workers_together(head: str, form: str) -> None:
    lines = [
        f"{head.format(who)}Epoch[2] {form.format(batch, batch - 10)}\tSpeed: {speed} samples/sec\taccuracy=0.1\n"
        for who, batch, speed in SPEEDS
    ]
    # A worker's own speed is samples over time: 40 and then 60 a second are 48. Where nobody says who is who, the
    # lines at batch 20 may be anybody's: 40 with 20 is 26.7, and 20 with 60 is 30.
    expected = 48 + 20 if "{}" in head else 2 / (1 / 40 + 1 / 20) + 2 / (1 / 20 + 1 / 60)
    (row,) = epochs("".join(lines))
    assert row.epoch == 3
    assert row.samples_per_second == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batches", "workers"),
    [
        ([10, 20, 10, 30, 20, 40, 30, 40], 2),  # one is ahead of the other, by one line and then by two
        (range(5000, 0, -1), 5000),
    ],
)
def test_nameless_workers_that_drift_apart_stay_as_many_as_they_are(batches: Sequence[int], workers: int) -> None:
    lines = [f"Epoch[0] Batch [{batch}]\tSpeed: 50.00 samples/sec\n" for batch in batches]
    assert epochs("".join(lines))[0].samples_per_second == pytest.approx(50 * workers)


@pytest.mark.parametrize("text", ["", "\n\n", "root:x:0:0\n", "Epoch[0] loss 0.5\nEpoch 1: accuracy=0.5\n"])
def test_of_other_text_nothing_is_made(text: str) -> None:
    assert read(text) == []


# ---- tf_cnn_benchmarks

HEADER = """\
TensorFlow:  1.13
Model:       resnet50
Dataset:     imagenet (synthetic)
Mode:        training
Batch size:  128 global
             64 per device
Num batches: 100
Devices:     ['/gpu:0', '/gpu:1']
Data format: NCHW
Optimizer:   sgd
Variables:   parameter_server
==========
Running warm up
Done warm up
"""
STEPS = "Step\tImg/sec\ttotal_loss\n1\timages/sec: 133.2 +/- 0.0 (jitter = 0.0)\t8.170\n"
STEPS += "10\timages/sec: 134.2 +/- 2.3 (jitter = 7.3)\t7.593\n"
TOTAL = "-----\ntotal images/sec: 133.81\n-----\n"


def test_a_benchmarks_log_has_its_steps_its_total_and_what_was_trained() -> None:
    (section,) = read(HEADER + STEPS + TOTAL)
    batch = "batch 64 per device, 128 global"
    assert section.title == f"resnet50 · imagenet (synthetic) · {batch} · NCHW · sgd · parameter_server"
    _, tenth, total = section.steps
    assert (tenth.step, tenth.images_per_second, tenth.uncertainty, tenth.jitter) == (10, 134.2, 2.3, 7.3)
    assert tenth.extras == {"total_loss": 7.593}
    assert (total.step, total.images_per_second, total.uncertainty) == (None, 133.81, None)

    (section,) = read(
        "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy\n"
        "1\timages/sec: 133.2 +/- 0.0 (jitter = 0.0)\t8.170\t0.001\t0.005\n"
    )
    assert section.steps[0].extras == {"total_loss": 8.17, "top_1_accuracy": 0.001, "top_5_accuracy": 0.005}
    (cut_short,) = read(HEADER + STEPS)
    assert [row.step for row in cut_short.steps] == [1, 10]


def test_speeds_of_workers_add_up_and_runs_are_told_apart() -> None:
    later = TOTAL.replace("133.81", "133.91")
    (section,) = read(HEADER + HEADER + STEPS + STEPS.partition("\n")[2] + TOTAL + later)
    _, tenth, total = section.steps
    assert (tenth.workers, tenth.images_per_second) == (2, 268.4)
    assert (tenth.uncertainty, tenth.extras) == (pytest.approx(2.3 * 2**0.5), {"total_loss": 7.593})
    assert (total.workers, total.images_per_second) == (2, pytest.approx(133.86))
    twice = (HEADER + STEPS + TOTAL) * 2
    assert [len(section.steps) for section in read(twice)] == [3, 3]
    (merged,) = read(twice, one_run=True)
    assert [row.workers for row in merged.steps] == [2, 2, 2]


# ---- the journal

EPOCH = Epoch(1, 2.0, 100, 0.5, 0.9, 0.6, 0.8, 103)


def line(**changes: object) -> str:
    return json.dumps(make_record(**changes).to_dict(), separators=(",", ":")) + "\n"  # type: ignore[arg-type]


def test_every_trial_of_a_journal_that_trained_for_epochs_is_a_section() -> None:
    first, second = read(line(epochs=(EPOCH,)) + line(repeat=2) + line(devices=2, repeat=1, epochs=(EPOCH, EPOCH)))
    assert first.title == "AlexNet · torch · allreduce · 1 device · repeat 1"
    assert second.title == "AlexNet · torch · allreduce · 2 devices · repeat 2"
    assert first.epochs == (EpochRow(1, {"accuracy": 0.9}, {"accuracy": 0.8}, 2.0, 50.0),)
    assert len(second.epochs) == 2
    failed = line(epochs=(EPOCH,), status=CRASH, failure=Failure(CRASH, "rank 1 ended\nmore"))
    assert read(failed)[0].title.endswith(" · repeat 1 · crash: rank 1 ended")
    text = line(epochs=(EPOCH,)) + line(epochs=(EPOCH, EPOCH)) + line(devices=2, epochs=(EPOCH,))[:-20]
    (section,) = read(text)
    assert len(section.epochs) == 2


NEWER = line(epochs=(EPOCH,)).replace(f'"schema":{SCHEMA}', '"schema":99')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(), ": no trial of this run trained for epochs; trainscale run --epochs N does"),
        (NEWER, ":1: written by a newer trainscale (schema 99,"),
        *(
            (line(epochs=(EPOCH,)) + damaged, ":2: this line is damaged")
            for damaged in ("{}\n", "precious\n", '{"schema":1}\n', "[]\n")
        ),
    ],
)
def test_a_journal_without_epochs_or_with_other_lines_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith(f"some.log{message}")


# ---- lines and numbers of any length: linear time, bounded memory, and a message

MANY = 300_000
DIGITS = 5000 * "9"


def read_or_refuse(line: str) -> str:
    """Return the message of a refusal; empty if the line is read."""
    try:
        read_log([line + "\n"], "some.log")
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "line",
    [
        "9" * MANY + "\timages/sec:",
        "1 images/sec: 1 +/- 1 (jitter = 1)" + " 1" * (MANY // 2) + " x",
        "Epoch[0] Train-" * (MANY // 15),
        "Epoch[0] Train-" + "a" * MANY,
        "Epoch[0] Batch [" + "9" * MANY + "] Speed: 1",
        "Epoch[0]" + " " * MANY,
        "Node[" * (MANY // 5) + "Epoch[0] Batch [1] Speed: 1 samples/sec",
        "] Model:" * (MANY // 8),
        " " * MANY + "9" * MANY,
        "\x1b[" * (MANY // 2),
    ],
    ids=lambda line: f"{line[:20]!r}…{line[-8:]!r}",
)
def test_reading_takes_time_in_proportion_to_the_length(line: str) -> None:
    message = read_or_refuse(line)
    assert not message or message.startswith("some.log:1: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"Epoch[{DIGITS}] Train-accuracy=0.5", "a number has 5000 digits; valid: at most 18"),
        (f"Epoch[1] Batch [{DIGITS}] Speed: 5 samples/sec", "a number has 5000 digits"),
        (f"{DIGITS}\timages/sec: 1 +/- 1 (jitter = 1)", "a number has 5000 digits"),
        (f"1\timages/sec: {DIGITS} +/- 1 (jitter = 1)", "images/sec is infinite"),
        ("1\timages/sec: inf +/- 1 (jitter = 1)", "images/sec is infinite"),
        ("1\timages/sec: 1 +/- 1e999 (jitter = 1)", "+/- is infinite"),
        ("total images/sec: 1e999", "total images/sec is infinite"),
    ],
)
def test_numbers_that_are_too_large_are_named_with_file_and_line(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_log(["INFO\n", line + "\n"], "some.log")
    assert str(caught.value).startswith(f"some.log:2: {message}")


@pytest.mark.parametrize(
    "text",
    [
        2 * "1\timages/sec: 1e308 +/- 1 (jitter = 1)\n",
        2 * "total images/sec: 1.7e308\n",
        "".join(f"1\timages/sec: 1 +/- 1 (jitter = 1)\t{loss}\n" for loss in ("inf", "-inf")),
    ],
)
def test_sums_that_overflow_are_a_message(text: str) -> None:
    with pytest.raises(InputError, match=r"some\.log: its values are infinite or too large to be added up"):
        read_log(text.splitlines(keepends=True), "some.log")


def test_a_line_that_is_too_long_is_cut_before_a_number_that_does_not_fit() -> None:
    pieces = ["total images/sec: 12.5 " + "x " * (1 << 19), "total images/sec: 99\n", "Model: a\n"]
    (section,) = read_log(pieces, "some.log")
    assert [row.images_per_second for row in section.steps] == [12.5]
    assert read_log(["x" * ((1 << 20) - 18) + " total images/sec: 12", "345\n"], "some.log") == []


@pytest.mark.processes
def test_a_line_of_100_megabytes_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"9" * 1_000_000)
        file.write(b"\ntotal images/sec: 12.5\n")
    limit = 450 << 20
    done = subprocess.run(
        [sys.executable, "-m", "trainscale", "parse-log", str(path), "--format", "tsv"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "12.50" in done.stdout
