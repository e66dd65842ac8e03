"""``--batch auto`` from the command line: a real search under a limit of memory, what is said of it, and what a second
command does not do again.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import SUPPORT

from trainscale.measure.batches import Attempt, Search, describe_attempt, describe_search
from trainscale.spec.config import AUTO, Config

pytestmark = pytest.mark.framework

GIB = 1024**3
LIMIT_KIB = 2 * 1024**2
ARGUMENTS = [
    "run", "--image-size", "16", "--classes", "10", "--strategies", "local", "--devices", "1", "--repeats", "1",
    "--steps", "2", "--warmup", "2", "-o", "out",
]  # fmt: skip


def limited(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a person would type it after ``ulimit -d``: every process may allocate 2 GiB."""
    shutil.copy(SUPPORT / "nets.py", folder)
    line = f'ulimit -d {LIMIT_KIB}; exec "$@"'
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "trainscale", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_the_largest_batch_is_searched_shown_measured_and_not_searched_again(tmp_path: Path) -> None:
    argv = [*ARGUMENTS, "--models", "nets:hungry:auto", "--max-batch", "3"]
    done = limited(tmp_path, *argv)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    name = "torch nets:hungry local"
    assert f"{name}: searching the largest batch that fits, at most 3" in lines
    shown = [line.partition(",")[0] for line in lines if re.match(r"batch \d+( fits|:)", line)]
    assert shown == ["batch 2 fits", "batch 3: out of memory", "batch 2 fits again"]
    result_lines = [line for line in lines if line.startswith(f"{name}: the largest batch that fits is 2 (")]
    assert len(result_lines) == 2  # when it was found, and among the results
    assert result_lines[0].endswith("3 does not, where a worker may allocate 2.0 GiB")
    (row,) = csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines())
    assert (row["batch_per_device"], row["status"]) == ("2", "ok")
    (search,) = json.loads((tmp_path / "out" / "batches.json").read_text())["searches"]
    assert (search["done"], len(search["attempts"])) == (True, 3)

    again = limited(tmp_path, *argv)
    assert again.returncode == 0, again.stderr
    assert "searching" not in again.stdout
    assert "all 1 trials are in the journal already" in again.stdout
    assert result_lines[0] in again.stdout.splitlines()


@pytest.mark.slow
def test_where_nothing_fits_the_row_says_so_and_the_exit_code_is_1(tmp_path: Path) -> None:
    done = limited(tmp_path, *ARGUMENTS, "--models", "nets:glutton:auto")
    assert done.returncode == 1, done.stderr
    (row,) = csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines())
    assert (row["status"], row["batch_per_device"]) == ("oom", "1")
    assert row["reason"].startswith("not even a batch of 1 fits")


# ---- messages

CONFIG = Config("torch", "alexnet", AUTO, "allreduce", 224, 1000)
FITS, FAILS = Attempt(512, True, 1.0, nvml_peak_bytes=int(14.2 * GIB)), Attempt(1024, False, 1.0, "no memory")


def test_an_attempt_is_one_line() -> None:
    search = Search(CONFIG, 65_536, "", (FITS, FAILS))
    assert describe_attempt(search, FITS) == "batch 512 fits, 14.2 GiB"
    assert describe_attempt(search, FAILS) == "batch 1,024: out of memory"
    twice = Search(CONFIG, 65_536, "", (FITS, FAILS, FITS))
    assert describe_attempt(twice, FITS) == "batch 512 fits again, 14.2 GiB"


def test_a_finding_names_what_fits_and_what_does_not_or_why_no_more_was_tried() -> None:
    name = "torch alexnet allreduce"
    text = describe_search(Search(CONFIG, 65_536, "", (FITS, FAILS, FITS), done=True))
    assert text == f"{name}: the largest batch that fits is 512 (14.2 GiB); 1,024 does not"
    text = describe_search(Search(CONFIG, 512, "--max-batch", (FITS, FITS), done=True))
    assert text == f"{name}: batch 512 still fits (14.2 GiB); not tried further: --max-batch"
    fails = Attempt(1, False, 1.0, "no memory", memory_limit_bytes=GIB)
    text = describe_search(Search(CONFIG, 512, "", (fails,), done=True))
    assert text == f"{name}: not even a batch of 1 fits, where a worker may allocate 1.0 GiB"
