"""A run of which a line is damaged: the rest is loaded, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_runs import two_series, write_run

import trainscale as ts


def test_a_damaged_line_is_a_warning_and_the_others_are_loaded(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", two_series()) / "trials.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["damaged\n", *rest]))
    with pytest.warns(UserWarning, match=r"trials\.jsonl:1: this line is damaged"):
        run = ts.load(tmp_path / "run")
    assert len(run.trials) == len(rest)
    path.write_text(first)
    assert len(ts.load(tmp_path / "run").trials) == 1
