"""A rank's source knows which samples it handed out; mistakes of the code that deals them out are found by them."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_sets import write_cifar10
from test_source import job, opened

from trainscale.analyse.witness import find_sample_problem
from trainscale.worker import sample
from trainscale.worker.data import loader
from trainscale.worker.data.loader import BatchMaker, load_dataset
from trainscale.worker.job import Job
from trainscale.worker.sample import SamplesSeen, SamplesTracker, SeenByRank, compute_hash_sum, pack_flags, unpack_flags

TRAIN, BATCH, WORKERS = 45, 4, 2


def report(rank: int, tracker: SamplesTracker) -> SeenByRank:
    return SeenByRank(rank, TRAIN, tuple(tracker.epochs.values()), pack_flags(tracker.flags))


def ranks_of(folder: Path, **config: Any) -> list[Job]:
    alone = job(folder, **config)
    return [replace(alone, rank=rank, workers=WORKERS, addresses=("h1",) * WORKERS) for rank in range(WORKERS)]


@pytest.mark.processes
def test_ranks_report_what_they_handed_out_in_epochs_with_validation_between(tmp_path: Path) -> None:
    reports = []
    for rank, wanted in enumerate(ranks_of(write_cifar10(tmp_path, TRAIN, 5), loaders=2)):
        with opened(wanted) as source:
            for number in range(2):
                list(source.load_epoch(number))
                list(source.load_validation_set())
            reports.append(report(rank, source.tracker))
            assert [(part.epoch, part.count, part.complete) for part in source.tracker.epochs.values()] == [
                (0, 20, True),
                (1, 20, True),
            ]
    assert find_sample_problem(BATCH, reports) is None
    assert sum(unpack_flags(entry.flags).bit_count() for entry in reports) == 40


@pytest.mark.processes
def test_an_endless_stream_is_counted_once_and_its_last_epoch_is_unfinished(tmp_path: Path) -> None:
    with opened(ranks_of(write_cifar10(tmp_path, TRAIN, 5))[0]) as source:
        list(itertools.islice(source.batches(), 7))
        counted = list(source.tracker.epochs.values())
        assert [(part.epoch, part.count, part.complete) for part in counted] == [(0, 20, True), (1, 8, False)]
        source.load_first_batch()  # as the loop does for steps on one batch
        assert list(source.tracker.epochs.values()) == counted
        flags = unpack_flags(pack_flags(source.tracker.flags))
        first = [number for number in range(TRAIN) if flags >> number & 1]
        assert len(first) == 20
        assert counted[0].hash_sum == compute_hash_sum(first)
        twice = [report(rank, source.tracker) for rank in range(WORKERS)]  # two ranks that both think they are rank 0
        assert "ranks 0 and 1 both trained on sample" in (find_sample_problem(BATCH, twice) or "")


# ---- mistakes in the code that shuffles and deals out


def make_epochs(folder: Path, epochs: int = 2) -> list[SeenByRank]:
    """Make batches as the loader processes do, but in this process, where a test can replace functions."""
    reports = []
    for rank in range(WORKERS):
        maker = BatchMaker(load_dataset("cifar10", str(folder)), ranks_of(folder, augment=False)[rank])
        steps = loader.count_steps_per_epoch(TRAIN, BATCH, WORKERS)
        tracker = SamplesTracker(TRAIN, steps * BATCH)
        pixels, labels = np.empty((BATCH, 3, 28, 28), np.uint8), np.empty(BATCH, np.int64)
        for epoch, step in itertools.product(range(epochs), range(steps)):
            samples = maker.write_training_batch(epoch, step, pixels, labels)
            tracker.add(epoch, samples, compute_hash_sum(samples))
        reports.append(report(rank, tracker))
    return reports


def same_part(order: Any, step: int, batch: int, rank: int, workers: int) -> Any:
    return order[step * batch * workers :][:batch]


def overlapping_parts(order: Any, step: int, batch: int, rank: int, workers: int) -> Any:
    return order[(step * workers + rank) * batch - rank :][:batch]


def with_replacement(count: int, seed: int, epoch: int) -> Any:
    return np.random.default_rng([seed, epoch]).integers(count, size=count)


def one_sample_twice(count: int, seed: int, epoch: int) -> Any:
    order = np.random.default_rng([seed, epoch]).permutation(count)
    order[8] = order[0]
    return order


def a_step_too_few(count: int, batch: int, workers: int) -> int:
    return count // (batch * workers) - 1


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("select_rank_batch", same_part),
        ("select_rank_batch", overlapping_parts),
        ("shuffle_epoch", with_replacement),
        ("shuffle_epoch", one_sample_twice),
        ("count_steps_per_epoch", a_step_too_few),
    ],
)
def test_a_mistake_in_dealing_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mistake: Any
) -> None:
    folder = write_cifar10(tmp_path, TRAIN, 5)
    assert find_sample_problem(BATCH, make_epochs(folder)) is None
    monkeypatch.setattr(loader, name, mistake)
    assert find_sample_problem(BATCH, make_epochs(folder))


def test_flags_of_a_very_large_set_are_not_kept_and_damaged_ones_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MOST_SAMPLES", 10)
    tracker = SamplesTracker(11, 11)
    tracker.add(0, np.array([3, 7]), compute_hash_sum([3, 7]))
    assert tracker.flags is None
    assert list(tracker.epochs.values()) == [SamplesSeen(0, 2, compute_hash_sum([3, 7]), False)]
    with pytest.raises(ValueError, match="damaged flags"):
        unpack_flags("aGVsbG8=")
