"""Fixtures for labs. The tests of a file share one lab. A file that needs other than four plain hosts overrides it:

@pytest.fixture(scope="module")
def lab(make_lab):
    return make_lab(2, rate="1gbit")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .hosts import Lab
from .namespaces import missing_requirement
from .slurm import Slurm

__all__ = ["lab", "make_lab", "slurm"]


@pytest.fixture(scope="module")
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Return a function that creates labs, which live until the end of the test file; skip where none can run."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Lab(*arguments, **options))


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(4)


@pytest.fixture(scope="module")
def slurm(lab: Lab) -> Slurm:
    """Start Slurm on this file's lab, with two simulated GPUs per host."""
    reason = missing_requirement(slurm=True)
    if reason:
        pytest.skip(reason)
    return lab.slurm(gpus=2)
