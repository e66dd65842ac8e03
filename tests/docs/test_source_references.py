"""Files that comments and docstrings name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
NAMES = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*") if path.suffix in (".py", ".md", ".sh")}
OTHERS = {"parse_log.py", "my_training.py"}  # of other projects, and examples


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_files_that_the_source_names_exist(path: Path) -> None:
    named = set(re.findall(r"(?<![\w/.{}-])(?:[\w-]+/)*[\w-]+\.(?:py|md)\b", path.read_text()))
    gone = {name for name in named - OTHERS if not any(f"/{known}".endswith(f"/{name}") for known in NAMES)}
    assert not gone
