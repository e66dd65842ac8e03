"""The real sets, where they lie beside the project; tests that want them are skipped where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

_HOME = Path(__file__).parents[2].parent / "shared" / "data"


def real(name: str) -> Path:
    """The folder of a real set, or the test is skipped."""
    if not (_HOME / name).is_dir():
        pytest.skip(f"there is no real data at ../shared/data/{name}")
    return _HOME / name
