"""Random images and labels, made once and kept on the device. Never zeros: some hardware computes faster on zeros.

Image i is the same whatever the batch and the number of ranks, so n ranks with batch b see what one device sees with
n·b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..job import Job


def batch(job: Job, place: Callable[[Any, Any], Any]) -> Any:
    """This rank's images, placed on the device."""
    size = job.config.image_size
    shape = (job.config.channels, size, size)
    return place(*images(job.seed, job.rank * job.batch, job.batch, shape, job.config.classes))


def images(seed: int, first: int, count: int, shape: tuple[int, int, int], classes: int) -> tuple[Any, Any]:
    """Images ``first`` … ``first + count - 1`` as float32 (count, C, H, W) and their labels as int64."""
    import numpy as np

    pixels: Any = np.empty((count, *shape), dtype=np.float32)
    labels: Any = np.empty(count, dtype=np.int64)
    for row in range(count):
        random = np.random.default_rng([seed, first + row])
        labels[row] = random.integers(classes)
        random.standard_normal(out=pixels[row], dtype=np.float32)
    return pixels, labels
