"""Logs with lines and numbers of any length: linear time, bounded memory, and a message. A pattern that goes back over
what it has read would take hours for these lines, and the test's time limit would end it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trainscale.analyse.logs import read_log
from trainscale.errors import InputError

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
        "9" * MANY,
        "9" * MANY + "\timages/sec:",
        "1 images/sec: " + "9" * MANY,
        "1 images/sec: 1 +/- 1 (jitter = 1)" + " 1" * (MANY // 2) + " x",
        "total images/sec: " + " " * MANY,
        "Epoch[0] Train-" * (MANY // 15),
        "Epoch[0] Train-" + "a" * MANY,
        "Epoch[" + "9" * MANY,
        "Epoch[0] Batch [" + "9" * MANY + "] Speed: 1",
        "Epoch[0]" + " " * MANY,
        "Node[" * (MANY // 5) + "Epoch[0] Batch [1] Speed: 1 samples/sec",
        "] Model:" * (MANY // 8),
        " " * MANY + "9" * MANY,
        "\x1b[" * (MANY // 2),
        "\x1b[" + "9" * MANY,
    ],
    ids=lambda line: f"{line[:20]!r}…{line[-8:]!r}",
)
def test_reading_takes_time_in_proportion_to_the_length(line: str) -> None:
    message = read_or_refuse(line)
    assert not message or message.startswith("some.log:1: ")


def test_batches_that_decrease_are_those_of_as_many_workers() -> None:
    lines = [f"Epoch[0] Batch [{batch}] Speed: 1.0 samples/sec\n" for batch in range(5000, 0, -1)]
    (section,) = read_log(lines, "some.log")
    assert section.epochs[0].samples_per_second == pytest.approx(5000)


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
