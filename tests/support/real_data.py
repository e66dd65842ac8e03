"""The real data sets, if they are beside the project. Tests that need them are skipped if they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

_HOME = Path(__file__).parents[2].parent / "shared" / "data"


def real(name: str) -> Path:
    """Return the folder of a real data set, or skip the test."""
    if not (_HOME / name).is_dir():
        pytest.skip(f"there is no real data at ../shared/data/{name}")
    return _HOME / name
