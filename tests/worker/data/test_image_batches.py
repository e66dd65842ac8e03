"""Which image comes when, how it is changed, and the memory that batches are written to: crops, mirrors, shifts and
enlargements are those of the experiments that are run again.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import make_job

from trainscale.worker.data import loader
from trainscale.worker.data.loader import BatchMaker, SharedArrays, count_steps_per_epoch, count_validation_steps

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
ALL = np.arange(len(IMAGES))
_WRITE = """
import json, sys
from trainscale.worker.data.loader import SharedArrays
shared = SharedArrays(*json.loads(sys.argv[1]))
shared["b"][1] += int(shared["a"].sum())
"""


def made(size: int, chance: np.ndarray | None, chosen: np.ndarray = ALL, images: np.ndarray = IMAGES) -> np.ndarray:
    places = np.full((len(chosen), images.shape[1], size, size), 77, np.uint8)
    loader.write_images(places, images, chosen, chance)
    return places


def chances(*triples: tuple[float, float, float]) -> np.ndarray:
    return np.asarray(triples, np.float32)


def test_what_is_drawn_depends_on_seed_epoch_and_image_alone() -> None:
    draws = loader.draw_numbers(100, 7, 2, 3)
    assert draws.shape == (100, 3)
    assert 0 <= draws.min() < draws.max() < 1
    assert np.array_equal(draws, loader.draw_numbers(100, 7, 2, 3))
    assert not np.array_equal(draws, loader.draw_numbers(100, 7, 3, 3))
    assert not np.array_equal(draws, loader.draw_numbers(100, 8, 2, 3))
    chosen = np.array([31, 4, 15])
    assert np.array_equal(made(28, draws[ALL])[chosen], made(28, draws[chosen], chosen))
    draws = loader.draw_numbers(5000, 1, 0, 3)  # all windows and both mirrors come about equally often
    assert np.bincount((draws[:, 0] * 5).astype(int), minlength=5).min() > 900
    assert 2300 < (draws[:, 2] < 0.5).sum() < 2700


def test_a_crop_is_a_window_anywhere_every_other_one_mirrored() -> None:
    corners = chances((0, 0, 0.9), (0.999, 0.999, 0.9), (0, 0.999, 0.1), (0.5, 0.25, 0.5))
    images = made(28, corners, ALL[:4])
    assert np.array_equal(images[0], IMAGES[0, :, :28, :28])
    assert np.array_equal(images[1], IMAGES[1, :, 4:, 4:])
    assert np.array_equal(images[2], IMAGES[2, :, :28, 4:][:, :, ::-1])
    assert np.array_equal(images[3], IMAGES[3, :, 2:30, 1:29])


def test_a_shift_moves_by_up_to_a_tenth_and_repeats_the_edge() -> None:
    images = made(32, chances((0.5, 0.5, 0.9), (0, 0.5, 0.9), (0.999, 0.999, 0.1)), ALL[:3])
    assert np.array_equal(images[0], IMAGES[0])
    assert np.array_equal(images[1, :, 3:], IMAGES[1, :, :29])
    assert (images[1, :, :3] == IMAGES[1, :, :1]).all()
    back = images[2, :, :, ::-1]
    assert np.array_equal(back[:, :29, :29], IMAGES[2, :, 3:, 3:])
    assert (back[:, 29:, :29] == IMAGES[2, :, 31:, 3:]).all()
    assert (back[:, :29, 29:] == IMAGES[2, :, 3:, 31:]).all()


@pytest.mark.parametrize("chance", [None, np.zeros((40, 3), np.float32)], ids=["validation", "training"])
def test_an_enlargement_repeats_pixels_and_leaves_black_around_whatever_was_there_before(
    chance: np.ndarray | None,
) -> None:
    images = made(299, chance)
    assert np.array_equal(images[:, :, 5:293, 5:293], IMAGES.repeat(9, 2).repeat(9, 3))
    images[:, :, 5:293, 5:293] = 0
    assert not images.any()


def test_validation_takes_the_middle_or_all_of_one_channel_too() -> None:
    chosen = np.array([3, 1])
    assert np.array_equal(made(28, None, chosen), IMAGES[chosen, :, 2:30, 2:30])
    assert np.array_equal(made(32, None, chosen), IMAGES[chosen])
    digits = IMAGES[:, :1, :28, :28]
    assert np.array_equal(made(28, None, images=digits), digits)
    assert made(32, None, images=digits)[:, :, 2:30, 2:30].tolist() == digits.tolist()


# ---- which image comes when


def of_rank(count: int, batch: int, rank: int, workers: int, epoch: int = 0) -> list[list[int]]:
    """The images of every step."""
    whole = loader.shuffle_epoch(count, 7, epoch)
    steps = range(count_steps_per_epoch(count, batch, workers))
    return [loader.select_rank_batch(whole, step, batch, rank, workers).tolist() for step in steps]


def test_an_epoch_is_a_permutation_by_seed_and_epoch() -> None:
    first = loader.shuffle_epoch(100, 7, 0)
    assert sorted(first) == list(range(100))
    assert np.array_equal(first, loader.shuffle_epoch(100, 7, 0))
    for other in (loader.shuffle_epoch(100, 7, 1), loader.shuffle_epoch(100, 8, 0)):
        assert sorted(other) == list(range(100))
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_ranks_are_disjoint_and_take_equally_many_full_steps(workers: int) -> None:
    ranks = [of_rank(103, 4, rank, workers) for rank in range(workers)]
    assert {len(steps) for steps in ranks} == {103 // (4 * workers)}
    assert {len(step) for steps in ranks for step in steps} == {4}
    seen = [image for steps in ranks for step in steps for image in step]
    assert len(seen) == len(set(seen)) == 103 // (4 * workers) * 4 * workers


def test_what_an_epoch_leaves_over_is_other_images_each_time() -> None:
    seen = [{image for step in of_rank(10, 4, 0, 1, epoch) for image in step} for epoch in range(8)]
    assert all(len(unused) == 8 for unused in seen)
    assert set.union(*seen) == set(range(10))
    assert len({frozenset(unused) for unused in seen}) > 1


@pytest.mark.parametrize(("count", "batch", "workers"), [(103, 4, 1), (103, 4, 2), (103, 10, 4), (3, 8, 5), (1, 1, 1)])
def test_every_validation_image_counts_once_and_all_ranks_take_as_many_steps(
    count: int, batch: int, workers: int
) -> None:
    images = np.full((count, 1, 4, 4), 9, np.uint8)
    stored = SharedArrays.from_arrays({"valid images": images, "valid labels": np.arange(count)})
    seen: list[int] = []
    for rank in range(workers):
        maker = BatchMaker(stored, make_job(rank=rank, workers=workers, batch=batch))
        for step in range(count_validation_steps(count, batch, workers)):
            pixels, labels = np.ones((batch, 1, 4, 4), np.uint8), np.full(batch, -1)
            counted = maker.write_validation_batch(step, pixels, labels)
            assert (pixels[:counted] == 9).all()
            assert not pixels[counted:].any()
            seen += labels[:counted].tolist()
    assert sorted(seen) == list(range(count))


# ---- shared memory


@pytest.mark.processes
def test_another_process_reads_and_writes_the_same_arrays() -> None:
    shared = SharedArrays.from_arrays(
        {"a": np.arange(7, dtype=np.uint8), "b": np.full((3, 2), 5, np.int64), "none": np.empty((0, 3))}
    )
    description = json.dumps([shared.descriptor, shared.layout])
    subprocess.run([sys.executable, "-c", _WRITE, description], pass_fds=(shared.descriptor,), check=True)
    assert shared["b"].tolist() == [[5, 5], [26, 26], [5, 5]]
    assert shared["none"].shape == (0, 3)


@pytest.mark.parametrize("has_call", [True, False])
def test_arrays_lie_apart_and_no_file_is_left(has_call: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_call:  # then a file without a name does as well
        monkeypatch.delattr(os, "memfd_create")
    before = set(Path("/dev/shm").iterdir())
    shared = SharedArrays.from_arrays({"a": np.zeros(3, np.uint8), "b": np.arange(5)})
    shared["a"][...] = 255
    assert shared["b"].tolist() == [0, 1, 2, 3, 4]
    assert set(Path("/dev/shm").iterdir()) == before


def test_memory_that_cannot_be_had_is_told_at_once_and_not_by_a_bus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MemoryError, match="cannot allocate 3 MiB of shared memory: No space left on device"):
        SharedArrays.allocate({"a": ("|u1", (3 * 2**20,))})
