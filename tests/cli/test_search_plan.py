"""``trainscale plan --search``, and what a search refuses before it starts."""

from __future__ import annotations

from pathlib import Path

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
