"""The batches of a rank, placed where the framework wants them. Random ones are made here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..job import Job
from ..models import find_samples
from .facts import SYNTHETIC

if TYPE_CHECKING:
    from ..frameworks.base import Adapter


def open_source(job: Job, adapter: Adapter) -> Any:
    if job.config.data == SYNTHETIC:
        return SyntheticSource(job, adapter)
    from .dataset import DatasetSource

    return DatasetSource(job, adapter)


class SyntheticSource:
    """Repeats one random batch, never zeros, on which some hardware computes faster."""

    waited_seconds = 0.0

    def __init__(self, job: Job, adapter: Adapter) -> None:
        self._batch = make_batch(job, adapter.place)

    def batches(self) -> Iterator[Any]:
        return itertools.repeat(self._batch)

    def load_first_batch(self) -> Any:
        return self._batch

    def close(self) -> None:
        pass


def make_batch(job: Job, place: Callable[[Any, Any], Any]) -> Any:
    samples = find_samples(job.config.model)
    shape = samples.shape(job.config)
    return place(*make_samples(job.seed, job.rank * job.batch, job.batch, shape, job.config.classes, samples.dtype))


def make_samples(
    seed: int, first: int, count: int, shape: tuple[int, ...], classes: int, dtype: str = "float32"
) -> tuple[Any, Any]:
    """Return random samples ``first`` … ``first + count - 1`` and their labels as int64.

    Sample i is the same whatever the batch: n ranks with batch b see what one device sees with n·b.
    """
    import numpy as np

    samples: Any = np.empty((count, *shape), dtype=dtype)
    labels: Any = np.empty(count, dtype=np.int64)
    for row in range(count):
        random = np.random.default_rng([seed, first + row])
        labels[row] = random.integers(classes)
        random.standard_normal(out=samples[row], dtype=samples.dtype)
    return samples, labels


@dataclass(frozen=True)
class Normalization:
    """Computes (pixel / 255 - mean) / deviation of each channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(1 / (255 * deviation) for deviation in self.deviation)

    @property
    def offsets(self) -> tuple[float, ...]:
        return tuple(-mean / deviation for mean, deviation in zip(self.mean, self.deviation))

    def __call__(self, pixels: Any) -> Any:
        import numpy as np

        result = np.empty(pixels.shape, np.float32)
        for channel, (factor, offset) in enumerate(zip(self.factors, self.offsets)):
            np.multiply(pixels[:, channel], np.float32(factor), out=result[:, channel], dtype=np.float32)
            result[:, channel] += np.float32(offset)
        return result
