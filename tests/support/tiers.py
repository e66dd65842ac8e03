"""The markers of the test that runs now. Helpers that start something expensive check them, so that a test without the
marker cannot pass.
"""

from __future__ import annotations

import pytest

_current: pytest.Item | None = None


def set_current(item: pytest.Item) -> None:
    global _current
    _current = item


def require(marker: str) -> None:
    """Fail the current test unless it has this marker."""
    if _current is not None and _current.get_closest_marker(marker) is None:
        pytest.fail(f"this test must be marked: @pytest.mark.{marker} (see pyproject.toml for what the marker means)")
