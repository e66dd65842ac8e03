"""Which image comes when: the same for every framework, and for any number of ranks.

An epoch is a permutation of all training images by seed and epoch. Step k of n ranks with batch b takes the k-th n·b of
them, and rank r the r-th b of those. So n ranks see what one device sees with a batch of n·b, no two ranks see the same
image, and all ranks take equally many steps. The images left over at the end of an epoch differ from epoch to epoch.
"""

from __future__ import annotations

import math
from typing import Any


def shuffle_epoch(count: int, seed: int, epoch: int) -> Any:
    """Return the permutation of an epoch; the first epoch is number 0."""
    import numpy as np

    return np.random.default_rng([seed, epoch]).permutation(count)


def count_steps_per_epoch(count: int, batch: int, workers: int) -> int:
    return count // (batch * workers)


def select_rank_batch(order: Any, step: int, batch: int, rank: int, workers: int) -> Any:
    """Return the images of one rank in one step, from the order of all images."""
    first = (step * workers + rank) * batch
    return order[first : first + batch]


def count_validation_steps(count: int, batch: int, workers: int) -> int:
    """Return the steps of a rank: as many on every rank, because a sharded network needs all ranks in each step."""
    return math.ceil(math.ceil(count / workers) / batch)


def select_validation_batch(count: int, step: int, batch: int, rank: int, workers: int) -> Any:
    """Return a rank's images of one step: fewer than ``batch``, or none, where the numbers do not divide."""
    import numpy as np

    low, high = count * rank // workers, count * (rank + 1) // workers
    first = min(low + step * batch, high)
    return np.arange(first, min(first + batch, high))
