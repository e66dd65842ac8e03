"""``run --summary-line``: lines that ReFrame and JUBE read, at the end of standard output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import trainscale

COMMAND = ("run", "--models", "mnist:8", "--steps", "5", "--warmup", "2", "--repeats", "1", "-o", "out")


@pytest.mark.framework
def test_a_run_ends_with_lines_that_a_pattern_reads(tmp_path: Path) -> None:
    done = trainscale(tmp_path, *COMMAND, "--devices", "1,2", "--summary-line", forks_ranks=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.partition("(open report.html")[2].splitlines()[1:]
    values = {match[1]: (match[2], match[3]) for line in lines if (match := re.fullmatch(r"(\S+): (\S+) (\S+)", line))}
    assert len(values) == len(lines) == 2 + 2 * 4
    assert (values["trials"], values["failed_trials"]) == (("2", "trials"), ("0", "trials"))
    assert values["torch_mnist_b8.n2.images_per_second"][1] == "images/s"
    assert float(values["torch_mnist_b8.n2.images_per_second"][0]) > 0
    assert values["torch_mnist_b8.n1.efficiency"] == ("100", "%")
