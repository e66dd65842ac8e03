"""Labs for tests. A test file shares one among its tests; it asks for other than four plain hosts by an own fixture:

@pytest.fixture(scope="module")
def lab(make_lab):
    return make_lab(2, rate="1gbit")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .hosts import Lab
from .requirements import needs
from .slurm import Slurm

__all__ = ["lab", "make_lab", "slurm"]


@pytest.fixture(scope="module")
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Makes labs that live until the end of the test file; skips with the reason where none can run."""
    reason = needs()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Lab(*arguments, **options))


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(4)


@pytest.fixture(scope="module")
def slurm(lab: Lab) -> Slurm:
    """Slurm over this file's lab, with two made-up GPUs a host."""
    reason = needs(slurm=True)
    if reason:
        pytest.skip(reason)
    return lab.slurm(gpus=2)
