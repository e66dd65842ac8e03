"""Files that comments and docstrings name exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
NAMES = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*") if path.suffix in (".py", ".md", ".sh")}
OTHERS = {"parse_log.py", "my_training.py"}  # of other projects, and examples


def test_files_that_the_source_names_exist() -> None:
    endings = {name[start:] for name in NAMES for start in (0, *(match.end() for match in re.finditer("/", name)))}
    gone = {}
    for path in SOURCES:
        named = set(re.findall(r"(?<![\w/.{}-])(?:[\w-]+/)*[\w-]+\.(?:py|md)\b", path.read_text()))
        if missing := named - OTHERS - endings:
            gone[path.relative_to(ROOT / "src").as_posix()] = missing
    assert gone == {}
