"""The list of findings that `make audit` explains."""

from __future__ import annotations

from pathlib import Path

from audit import EXPLAINED

SOURCES = Path(__file__).parents[1] / "src" / "trainscale"


def test_every_explained_finding_is_in_a_file_that_exists() -> None:
    """Otherwise a file that was moved makes `make audit` fail, and an explanation may stay for ever."""
    assert [file for file, _ in EXPLAINED if not (SOURCES / file).is_file()] == []
