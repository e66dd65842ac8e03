"""Which image comes when: a permutation of every epoch, dealt out to the ranks without overlap, in equal steps."""

from __future__ import annotations

import numpy as np
import pytest

from trainscale.worker.data import sampling
from trainscale.worker.data.sampling import count_steps_per_epoch, count_validation_steps


def of_rank(count: int, batch: int, rank: int, workers: int, epoch: int = 0) -> list[list[int]]:
    """The images of every step."""
    whole = sampling.shuffle_epoch(count, 7, epoch)
    steps = range(count_steps_per_epoch(count, batch, workers))
    return [sampling.select_rank_batch(whole, step, batch, rank, workers).tolist() for step in steps]


def test_an_epoch_is_a_permutation_by_seed_and_epoch() -> None:
    first = sampling.shuffle_epoch(100, 7, 0)
    assert sorted(first) == list(range(100))
    assert np.array_equal(first, sampling.shuffle_epoch(100, 7, 0))
    for other in (sampling.shuffle_epoch(100, 7, 1), sampling.shuffle_epoch(100, 8, 0)):
        assert sorted(other) == list(range(100))
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_ranks_are_disjoint_and_take_equally_many_full_steps(workers: int) -> None:
    ranks = [of_rank(103, 4, rank, workers) for rank in range(workers)]
    assert {len(steps) for steps in ranks} == {103 // (4 * workers)}
    assert {len(step) for steps in ranks for step in steps} == {4}
    seen = [image for steps in ranks for step in steps for image in step]
    assert len(seen) == len(set(seen)) == 103 // (4 * workers) * 4 * workers


def test_many_ranks_see_what_one_device_sees_with_their_batches_together() -> None:
    together = [[*a, *b, *c] for a, b, c in zip(*(of_rank(100, 4, rank, 3) for rank in range(3)), strict=True)]
    assert together == of_rank(100, 12, 0, 1)


def test_what_an_epoch_leaves_over_is_other_images_each_time() -> None:
    seen = [{image for step in of_rank(10, 4, 0, 1, epoch) for image in step} for epoch in range(8)]
    assert all(len(unused) == 8 for unused in seen)
    assert set.union(*seen) == set(range(10))
    assert len({frozenset(unused) for unused in seen}) > 1


@pytest.mark.parametrize(("count", "batch", "workers"), [(103, 4, 1), (103, 4, 2), (103, 10, 4), (3, 8, 5), (1, 1, 1)])
def test_every_validation_image_counts_once_and_all_ranks_take_as_many_steps(
    count: int, batch: int, workers: int
) -> None:
    steps = count_validation_steps(count, batch, workers)
    parts = [
        sampling.select_validation_batch(count, step, batch, rank, workers)
        for rank in range(workers)
        for step in range(steps)
    ]
    assert all(len(part) <= batch for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
