"""Loader processes: real ones. What they make does not depend on how many they are; none outlives its rank."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import make_config, make_job
from processes import MARK, marked, until
from small_sets import write_cifar10, write_folder

from trainscale.worker.data.loader import BatchRequest, Loader, LoaderError, count_validation_steps, load_dataset
from trainscale.worker.sample import compute_hash_sum

TRAIN = 50


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_cifar10(tmp_path_factory.mktemp("cifar"), TRAIN, 13))


def loading(
    folder: str,
    processes: int = 1,
    data: str = "cifar10",
    image_size: int = 28,
    augment: bool = True,
    **values: Any,
) -> closing[Loader]:
    """Start loader processes for a test alone."""
    config = make_config(data=data, image_size=image_size, augment=augment)
    job = make_job(config=config, data_dir=folder, **{"batch": 4, "seed": 7, **values})
    return closing(Loader(job, processes))


@pytest.fixture(scope="module")
def shared_loader(cifar: str) -> Iterator[Callable[..., Loader]]:
    """Return the loader of CIFAR-10 with these settings, which the tests share, because Python takes long to start."""
    with ExitStack() as stack:
        yield cache(lambda processes=1, **settings: stack.enter_context(loading(cifar, processes, **settings)))


def epoch(loader: Loader, number: int = 0, steps: int = 5) -> list[tuple[np.ndarray, list[int]]]:
    """Copy the batches, because their slots are used again."""
    requests = [BatchRequest(step, number) for step in range(steps)]
    return [(pixels.copy(), labels.tolist()) for pixels, labels, *_ in loader.load_batches(requests)]


def same(batches: list[tuple[np.ndarray, list[int]]], other: list[tuple[np.ndarray, list[int]]]) -> bool:
    pairs = zip(batches, other, strict=True)
    return all(np.array_equal(a, b) and truth == other_truth for (a, truth), (b, other_truth) in pairs)


@pytest.mark.processes
@pytest.mark.parametrize("size", [28, 32, 40])
def test_batches_are_the_same_in_the_same_order_however_many_processes_make_them(
    shared_loader: Callable[..., Loader], size: int
) -> None:
    by_one, by_three = (shared_loader(processes, image_size=size) for processes in (1, 3))
    assert same(epoch(by_one, steps=12), epoch(by_three, steps=12))


@pytest.mark.processes
def test_many_ranks_see_what_one_device_sees_with_their_batches_together(shared_loader: Callable[..., Loader]) -> None:
    wanted = epoch(shared_loader(batch=8), 3)
    halves = [epoch(shared_loader(rank=rank, workers=2), 3) for rank in range(2)]
    together = [(np.concatenate([a, b]), x + y) for (a, x), (b, y) in zip(*halves, strict=True)]
    assert same(together, wanted)


@pytest.mark.processes
def test_epochs_and_seeds_differ(shared_loader: Callable[..., Loader]) -> None:
    loader = shared_loader(image_size=28)
    first = epoch(loader)
    assert same(first, epoch(loader))
    assert not same(first, epoch(loader, 1))
    assert not same(first, epoch(shared_loader(seed=8)))


@pytest.mark.processes
@pytest.mark.parametrize(("batch", "workers", "processes"), [(4, 1, 2), (5, 3, 1), (20, 2, 1)])
def test_every_validation_image_counts_once_and_the_rest_of_a_batch_is_black(
    cifar: str, batch: int, workers: int, processes: int
) -> None:
    stored = load_dataset("cifar10", cifar)
    seen = []
    for rank in range(workers):
        with loading(cifar, processes, batch=batch, rank=rank, workers=workers, image_size=32) as loader:
            requests = [*map(BatchRequest, range(count_validation_steps(13, batch, workers)))]
            for pixels, labels, counted, *_ in loader.load_batches(requests):
                assert len(pixels) == batch
                assert not pixels[counted:].any()
                seen += [(image.tobytes(), int(label)) for image, label in zip(pixels[:counted], labels, strict=False)]
    wanted = zip(stored["valid images"], stored["valid labels"], strict=True)
    assert sorted(seen) == sorted((image.tobytes(), int(label)) for image, label in wanted)


@pytest.mark.processes
def test_a_batch_stays_as_it_is_until_three_more_were_taken(shared_loader: Callable[..., Loader]) -> None:
    requests = (BatchRequest(step, epoch) for epoch in itertools.count() for step in range(12))
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for pixels, *_ in itertools.islice(shared_loader(2).load_batches(requests), 60):
        held = [*held[-3:], (pixels, pixels.copy())]
        assert all(np.array_equal(now, then) for now, then in held)


@pytest.mark.processes
def test_an_iterator_that_is_left_early_spoils_nothing(shared_loader: Callable[..., Loader]) -> None:
    loader = shared_loader(2)
    wanted = epoch(loader, 2)
    for taken in range(4):
        list(itertools.islice(loader.load_batches(BatchRequest(step, 1) for step in range(12)), taken))
        assert same(epoch(loader, 2), wanted)


@pytest.mark.processes
def test_photographs_are_decoded_by_the_processes_names_of_any_letters_included(tmp_path: Path) -> None:
    strange = os.fsdecode(b"caf\xe9")  # not UTF-8
    write_folder(tmp_path, classes=["grün", "☃ snow", strange])
    place, data = str(tmp_path), "imagefolder:x"
    with loading(place, 1, data, batch=3) as by_one, loading(place, 2, data, batch=3) as by_two:
        first = epoch(by_one, steps=2)
        assert same(first, epoch(by_two, steps=2))
        assert not same(first, epoch(by_one, 1, steps=2))
    assert sorted(label for _, labels in first for label in labels) == [0, 0, 1, 1, 2, 2]


@pytest.mark.processes
@pytest.mark.parametrize("processes", [1, 3])
def test_a_training_batch_carries_the_numbers_of_its_samples_which_are_as_stored_without_augmentation(
    cifar: str, processes: int
) -> None:
    stored = load_dataset("cifar10", cifar)
    with loading(cifar, processes, image_size=32, augment=False) as loader:
        for batch in loader.load_batches([BatchRequest(step, epoch) for epoch in range(2) for step in range(12)]):
            assert np.array_equal(batch.pixels, stored["train images"][batch.samples])
            assert np.array_equal(batch.labels, stored["train labels"][batch.samples])
            assert batch.hash_sum == compute_hash_sum(batch.samples)


# ---- trouble


@pytest.mark.processes
def test_a_damaged_photograph_is_named_to_the_rank(tmp_path: Path) -> None:
    write_folder(tmp_path)
    path = tmp_path / "train" / "bee" / "1.jpg"
    path.write_bytes(path.read_bytes()[:300])
    error_is_raised = pytest.raises(LoaderError, match=f"{path} is damaged, or no photograph")
    with loading(str(tmp_path), 2, "imagefolder:x", batch=1) as loader, error_is_raised:
        epoch(loader, steps=4)


@pytest.mark.processes
def test_a_process_that_is_killed_is_an_error_and_no_silence(cifar: str) -> None:
    with loading(cifar, 2) as loader:
        stream = loader.load_batches(BatchRequest(step, epoch) for epoch in itertools.count() for step in range(12))
        next(stream)
        victim = loader._processes[1]
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(LoaderError, match=r"a loader process was ended by SIGKILL: is there memory left\?"):
            list(itertools.islice(stream, 20))


_RANK = """
import itertools, json, sys, time
from trainscale.worker.data.loader import BatchRequest, Loader
from trainscale.worker.job import Job
job, end = sys.argv[1:]
loader = Loader(Job.from_json(job), 2)
stream = loader.load_batches(BatchRequest(step, 0) for step in itertools.count())
next(stream)
print(json.dumps([process.pid for process in loader._processes]), flush=True)
if end == "raise":
    raise ValueError("a rank that ends early")
if end == "wait":
    time.sleep(600)
"""


@pytest.mark.processes
@pytest.mark.parametrize("end", ["return", "raise", "killed", "terminated", "interrupted"])
def test_however_a_rank_ends_its_processes_end_too(cifar: str, end: str, tmp_path: Path) -> None:
    ways = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "interrupted": signal.SIGINT}
    job = make_job(config=make_config(data="cifar10"), batch=4, data_dir=cifar)
    rank = subprocess.Popen(
        [sys.executable, "-c", _RANK, job.to_json(), "wait" if end in ways else end],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, MARK: str(tmp_path)},
    )  # fmt: skip
    assert rank.stdout is not None
    loaders = json.loads(rank.stdout.readline())
    assert len(loaders) == 2
    if end in ways:
        rank.send_signal(ways[end])
    rank.wait(60)
    rank.stdout.close()
    until(lambda: not marked(str(tmp_path)), "the end of the loader processes")


@pytest.mark.processes
def test_a_loader_without_a_rank_ends_at_once() -> None:
    from trainscale.launch.launchers.base import START

    done = subprocess.run([sys.executable, str(START), "loader"], stdin=subprocess.DEVNULL, check=False, timeout=60)
    assert done.returncode == 1
