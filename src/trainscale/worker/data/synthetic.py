"""Random samples and labels, made once and kept on the device. Never zeros: some hardware computes faster on zeros.

Sample i is the same whatever the batch and the number of ranks, so n ranks with batch b see what one device sees with
n·b.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..job import Job
from ..models import find_samples

if TYPE_CHECKING:
    from ..frameworks.base import Adapter


class SyntheticSource:
    """Repeats one batch, which is placed on the device once. So no input pipeline is measured."""

    waited_seconds = 0.0
    tracker = None  # random samples are no data set

    def __init__(self, job: Job, adapter: Adapter) -> None:
        self._batch = make_batch(job, adapter.place)

    def batches(self) -> Iterator[Any]:
        return itertools.repeat(self._batch)

    def load_first_batch(self) -> Any:
        return self._batch

    def close(self) -> None:
        """Do nothing: nothing is open."""


def make_batch(job: Job, place: Callable[[Any, Any], Any]) -> Any:
    """Return this rank's samples, placed on the device."""
    samples = find_samples(job.config.model)
    shape = samples.shape(job.config)
    return place(*make_samples(job.seed, job.rank * job.batch, job.batch, shape, job.config.classes, samples.dtype))


def make_samples(
    seed: int, first: int, count: int, shape: tuple[int, ...], classes: int, dtype: str = "float32"
) -> tuple[Any, Any]:
    """Return samples ``first`` … ``first + count - 1``, normally distributed, and their labels as int64."""
    import numpy as np

    samples: Any = np.empty((count, *shape), dtype=dtype)
    labels: Any = np.empty(count, dtype=np.int64)
    for row in range(count):
        random = np.random.default_rng([seed, first + row])
        labels[row] = random.integers(classes)
        random.standard_normal(out=samples[row], dtype=samples.dtype)
    return samples, labels
