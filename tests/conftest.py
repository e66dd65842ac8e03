"""What many tests need: networks made for tests, and trials run in real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.fixtures import lab, make_lab, slurm  # noqa: F401  (hosts of their own, for tests of what needs several)

# Helpers are plain modules in tests/support; the worker finds the networks there too, by its own module path.
sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(autouse=True, scope="module")
def _tables_as_they_were() -> Iterator[None]:
    """What a test adds to the tables of frameworks, models and launchers is gone after its file."""
    from trainscale.launch.launchers.catalog import LAUNCHERS
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.models import catalog

    tables: list[dict] = [LAUNCHERS, FRAMEWORKS, catalog._BY_NAME]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    catalog._folded.cache_clear()
