"""``trainscale plan --search``, and what a search refuses before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import trainscale

SPACE = ("--models", "mnist", "--batch", "8,16", "--precision", "fp32,bf16", "--devices", "1")


def test_a_plan_says_what_a_search_takes_at_most(tmp_path: Path) -> None:
    text = " ".join(trainscale(tmp_path, "plan", *SPACE, "--search", columns=200).stdout.split())
    assert "at most 4 rounds of short trials (5 + 20 steps) over the 4 candidates" in text
    assert "at most 16 short trials and 5 in full, instead of 20 in full" in text


def test_a_plan_without_a_search_has_every_combination_in_full(tmp_path: Path) -> None:
    text = " ".join(trainscale(tmp_path, "plan", *SPACE, columns=200).stdout.split())
    assert "5 rounds over 4 points" in text
    assert "20 trials" in text
    assert "mnist allreduce bf16 1 16 16" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--search", "--budget", "5m"), "budget and search exclude each other"),
        (("--search", "--data", "mnist", "--epochs", "2"), "search and epochs exclude each other"),
        (("--search", "--batch", "8,auto"), "batch auto: a search compares batches by speed"),
        (("--search", "--strategies", "allreduce,independent"), "'independent': nothing is exchanged"),
        (("--search=all",), "'all' is not valid; valid: lists (the settings that are lists) or default"),
        (("--precision", "fp32,fp64"), "unknown value 'fp64'"),
    ],
)
def test_what_a_search_cannot_do_is_refused_with_a_sentence(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = trainscale(tmp_path, "plan", "--models", "mnist", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
