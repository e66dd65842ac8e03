"""Ranks that train on the wrong samples are found, whatever made the mistake."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trainscale.analyse.witness import find_sample_problem
from trainscale.worker.sample import SamplesTracker, SeenByRank, compute_hash_sum, pack_flags

Batches = list[list[int]]  # the sample numbers of one rank's epoch
Epochs = list[list[Batches]]  # of every rank, of every epoch

TRAIN, BATCH = 50, 4


def deal(train: int = TRAIN, workers: int = 2, epochs: int = 2) -> Epochs:
    """Deal samples out as a correct trial does: not by the code of the worker."""
    steps = train // (BATCH * workers)
    shuffled = [np.random.default_rng([9, epoch]).permutation(train).tolist() for epoch in range(epochs)]
    return [
        [
            [order[(step * workers + rank) * BATCH :][:BATCH] for step in range(steps)]
            for order in shuffled
        ]
        for rank in range(workers)
    ]  # fmt: skip


def report(rank: int, epochs: list[Batches], train: int = TRAIN, complete: bool = True) -> SeenByRank:
    tracker = SamplesTracker(train, share=0)
    for epoch, batches in enumerate(epochs):
        for batch in batches:
            tracker.add(epoch, np.array(batch), compute_hash_sum(batch))
    seen = tuple(replace(seen, complete=complete) for seen in tracker.epochs.values())
    return SeenByRank(rank, train, seen, pack_flags(tracker.flags))


def judge(dealt: Epochs, train: int = TRAIN, complete: bool = True) -> str | None:
    ranks = [report(rank, epochs, train, complete) for rank, epochs in enumerate(dealt)]
    return find_sample_problem(BATCH, ranks)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("train", [48, 50, 97])
def test_ranks_that_share_the_samples_of_every_epoch_are_right(workers: int, train: int) -> None:
    assert judge(deal(train, workers, epochs=3), train) is None
    assert judge(deal(train, workers), train, complete=False) is None


def give_rank_1_the_part_of_rank_0(dealt: Epochs) -> None:
    dealt[1] = dealt[0]


def give_rank_1_the_part_of_rank_0_in_the_second_epoch(dealt: Epochs) -> None:
    dealt[1][1] = dealt[0][1]


def drop_the_last_batch_of_rank_1(dealt: Epochs) -> None:
    dealt[1][0] = dealt[1][0][:-1]


def drop_the_last_batch_of_rank_1_in_the_second_epoch(dealt: Epochs) -> None:
    dealt[1][1] = dealt[1][1][:-1]


def train_on_a_sample_twice(dealt: Epochs) -> None:
    dealt[0][0][3][1] = dealt[0][0][0][0]


def train_on_a_sample_of_the_other_rank(dealt: Epochs) -> None:
    dealt[0][0][3][1] = dealt[1][0][0][0]


def shuffle_each_rank_by_itself(dealt: Epochs) -> None:
    for rank, epochs in enumerate(dealt):
        order = np.random.default_rng(rank).permutation(TRAIN).tolist()
        epochs[0] = [order[first : first + BATCH] for first in range(0, BATCH * len(epochs[0]), BATCH)]


def count_past_the_end(dealt: Epochs) -> None:
    dealt[1][0][2][2] = TRAIN


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (give_rank_1_the_part_of_rank_0, "ranks 0 and 1 both trained on sample 0 (24 in common)"),
        (
            give_rank_1_the_part_of_rank_0_in_the_second_epoch,
            "ranks 0 and 1 trained on the same samples in epoch 1",
        ),
        (drop_the_last_batch_of_rank_1, "rank 1 trained on 20 samples in epoch 0, not 24"),
        (drop_the_last_batch_of_rank_1_in_the_second_epoch, "rank 1 trained on 20 samples in epoch 1, not 24"),
        (train_on_a_sample_twice, "rank 0 trained on 24 samples in epoch 0, of which only 23 are different"),
        (train_on_a_sample_of_the_other_rank, "(1 in common)"),
        (shuffle_each_rank_by_itself, "ranks 0 and 1 both trained on sample"),
    ],
)
def test_a_mistake_is_found(mistake: Callable[[Epochs], None], message: str) -> None:
    dealt = deal()
    mistake(dealt)
    assert message in (judge(dealt) or "")


def test_wrong_samples_are_found_by_their_numbers_and_hashes() -> None:
    dealt = deal()
    count_past_the_end(dealt)
    ranks = [replace(report(rank, epochs, TRAIN + 1), train=TRAIN) for rank, epochs in enumerate(dealt)]
    assert find_sample_problem(BATCH, ranks) == "rank 1 trained on a sample beyond the 50 of the data set"
    dealt = deal(train=48)
    assert judge(dealt, 48) is None
    dealt[0][1][3][1] = dealt[1][1][0][0]
    assert judge(dealt, 48) == "the ranks together did not train on every sample of epoch 1 once"


@pytest.mark.parametrize("mistake", [train_on_a_sample_twice, train_on_a_sample_of_the_other_rank])
def test_an_epoch_that_was_not_finished_is_compared_too(mistake: Callable[[Epochs], None]) -> None:
    dealt = deal(epochs=1)
    mistake(dealt)
    assert judge(dealt, complete=False)


def test_the_hash_of_a_set_does_not_depend_on_its_order_and_parts_add_up() -> None:
    numbers = np.random.default_rng(3).permutation(1000)
    parts = compute_hash_sum(numbers[:400]) + compute_hash_sum(numbers[400:])
    assert compute_hash_sum(np.arange(1000)) == parts % (2**61 - 1)
    assert compute_hash_sum([1, 4]) != compute_hash_sum([2, 3])
