"""Which image comes when: the same for every framework, and for any number of ranks.

An epoch is a permutation of all training images by seed and epoch. Step k of n ranks with batch b takes the k-th n·b of
them, rank r the r-th b of those: n ranks see what one device sees with a batch of n·b, no two ranks see the same image,
and all take equally many steps. What is left over at the end of an epoch is other images each time.
"""

from __future__ import annotations

import math
from typing import Any


def order(count: int, seed: int, epoch: int) -> Any:
    """The permutation of an epoch (the first is number 0)."""
    import numpy as np

    return np.random.default_rng([seed, epoch]).permutation(count)


def steps_per_epoch(count: int, batch: int, workers: int) -> int:
    return count // (batch * workers)


def part(whole: Any, step: int, batch: int, rank: int, workers: int) -> Any:
    """The images of one rank in one step."""
    first = (step * workers + rank) * batch
    return whole[first : first + batch]


def validation_steps(count: int, batch: int, workers: int) -> int:
    """As many on every rank, because a sharded network computes only where all ranks take part."""
    return math.ceil(math.ceil(count / workers) / batch)


def validation_part(count: int, step: int, batch: int, rank: int, workers: int) -> Any:
    """A rank's images of one step: fewer than ``batch``, or none, where the numbers do not divide."""
    import numpy as np

    low, high = count * rank // workers, count * (rank + 1) // workers
    first = min(low + step * batch, high)
    return np.arange(first, min(first + batch, high))
