"""A fixture for tests of launchers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import MARK, marked, until


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Whatever is started in a test carries its mark; nothing of that may be left."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield tmp_path
    until(lambda: not marked(str(tmp_path)), "the end of all that the test started", 20)
