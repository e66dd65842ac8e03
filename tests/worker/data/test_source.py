"""A rank's source of batches, random and real, with as much of an adapter as it needs; trials on photographs."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_sets import write_cifar10, write_folder, write_mnist
from trials import run_trial

from trainscale.worker.config import Config
from trainscale.worker.data import dataset, source
from trainscale.worker.data.dataset import DatasetSource, choose_loader_count, count_updates_per_epoch
from trainscale.worker.data.facts import KNOWN, DataError
from trainscale.worker.data.loader import LoaderError, load_dataset
from trainscale.worker.data.source import Normalization, SyntheticSource
from trainscale.worker.job import Device, Job, Measure


class Copying:
    """Of an adapter, what a source calls."""

    def place_pixels(self, pixels: np.ndarray, labels: np.ndarray, normal: Any) -> tuple[np.ndarray, np.ndarray]:
        return normal(pixels), labels.copy()


def job(folder: Path, data: str = "cifar10", **config: Any) -> Job:
    """Of one rank with batches of 4."""
    values = {"loaders": 1, "image_size": 28, **config}
    channels = 1 if data == "mnist" else 3
    settings = Config("torch", "mnist", 4, "local", values.pop("image_size"), 10, channels, data=data, **values)
    return Job("worker", 0, 1, 0, ("h1",), (1,), 2, Device(), settings, batch=4, seed=5, data_dir=str(folder))


@contextmanager
def opened(wanted: Job) -> Iterator[DatasetSource]:
    dataset._read_facts_once.cache_clear()
    real = DatasetSource(wanted, Copying())
    try:
        yield real
    finally:
        real.close()


def test_pixels_become_numbers_by_mean_and_deviation_of_each_channel() -> None:
    normal = Normalization(KNOWN["cifar10"].mean, KNOWN["cifar10"].deviation)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 4), dtype=np.uint8)
    mean, deviation = (np.reshape(values, (3, 1, 1)) for values in (normal.mean, normal.deviation))
    numbers = normal(pixels)
    assert numbers.dtype == np.float32
    assert numbers == pytest.approx((pixels / 255 - mean) / deviation, abs=1e-5)


@pytest.mark.processes
def test_epochs_with_validation_between_have_the_batches_of_the_endless_stream(tmp_path: Path) -> None:
    with opened(job(write_cifar10(tmp_path, 20, 6), loaders=2)) as real:
        assert real.steps == 5
        stream = [labels.tolist() for _, labels in itertools.islice(real.batches(), 15)]
        epochs = []
        for number in range(3):
            epochs.append([labels.tolist() for _, labels in real.load_epoch(number)])
            assert [counted for _, _, counted in real.load_validation_set()] == [4, 2]
        assert stream == [labels for epoch in epochs for labels in epoch]
        assert epochs[0] != epochs[1]
        assert real.load_first_batch()[1].tolist() == stream[0]  # although the next epoch is being loaded
        assert real.waited_seconds > 0


@pytest.mark.processes
def test_digits_are_not_augmented_and_have_one_channel(tmp_path: Path) -> None:
    folder = str(write_mnist(tmp_path, 20, 5))
    stored = load_dataset("mnist", folder)
    with opened(job(tmp_path, "mnist")) as digits:
        images = digits._normalization(stored["train images"])
        for pixels, labels in digits.load_epoch(0):
            assert pixels.shape == (4, 1, 28, 28)
            for image, label in zip(pixels, labels, strict=True):
                assert label in stored["train labels"][(images == image).all(axis=(1, 2, 3))]


@pytest.mark.processes
def test_what_is_wrong_is_told_with_the_host_where_there_are_several(tmp_path: Path) -> None:
    here = socket.gethostname()
    missing = job(tmp_path)
    with pytest.raises(DataError, match=rf"^{tmp_path}/data_batch_1\.bin is missing; get the set with"):
        opened(missing).__enter__()
    with pytest.raises(DataError, match=rf"^on host {here}: {tmp_path}/data_batch_1\.bin is missing"):
        opened(replace(missing, addresses=("h1", "h2"))).__enter__()
    folder = write_folder(tmp_path / "p")
    for path in (folder / "train").rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:200])
    two_hosts = replace(job(folder, "imagefolder:p"), addresses=("h1", "h2"))
    with (
        opened(two_hosts) as real,
        pytest.raises(LoaderError, match=f"^on host {here}: {folder}/train/.*jpg is damaged"),
    ):
        next(real.batches())


def test_a_server_knows_how_many_updates_an_epoch_has(tmp_path: Path) -> None:
    dataset._read_facts_once.cache_clear()
    wanted = replace(job(write_cifar10(tmp_path, 45, 5), epochs=3), workers=2, addresses=("h1", "h1"))
    assert count_updates_per_epoch(wanted) == 5
    assert count_updates_per_epoch(replace(wanted, config=replace(wanted.config, epochs=0))) == 0


def test_loaders_are_as_many_as_asked_for_or_as_suit_the_images(tmp_path: Path) -> None:
    small, photographs = job(tmp_path, loaders=0), job(tmp_path, "imagefolder:x", loaders=0)
    four = Device(cores=(0, 1, 2, 3))
    assert choose_loader_count(job(tmp_path, loaders=5)) == 5
    assert choose_loader_count(small) == 1
    assert choose_loader_count(replace(small, device=four)) == 1
    assert choose_loader_count(replace(photographs, device=four)) == 4
    assert choose_loader_count(replace(photographs, device=Device("cuda", cores=tuple(range(64))))) == 8


# ---- random images

SHAPE = (3, 8, 8)
CONFIG = Config("torch", "mnist", 4, "allreduce", 8, 10)
JOB = Job("worker", 0, 2, 0, ("127.0.0.1",) * 2, 1, 2, Device(), CONFIG, batch=4, seed=5)


def test_images_are_random_and_never_zero_and_depend_on_seed_and_number_alone() -> None:
    whole, labels = source.make_samples(5, 0, 8, SHAPE, 10)
    half, half_labels = source.make_samples(5, 4, 4, SHAPE, 10)
    assert np.array_equal(whole[4:], half)
    assert np.array_equal(labels[4:], half_labels)
    assert not np.array_equal(whole, source.make_samples(6, 0, 8, SHAPE, 10)[0])
    pixels, labels = source.make_samples(5, 0, 64, SHAPE, 10)
    assert (pixels.dtype, labels.dtype) == (np.float32, np.int64)
    assert abs(float(pixels.mean())) < 0.05
    assert 0.9 < float(pixels.std()) < 1.1
    assert not (pixels == 0).all(axis=(1, 2, 3)).any()
    assert 3 < len(set(labels.tolist()) & set(range(10))) == len(set(labels.tolist()))


def test_ranks_get_disjoint_parts_and_the_same_batch_in_every_step() -> None:
    placed: list[int] = []

    def place(pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
        placed.append(len(pixels))
        return pixels

    adapter: Any = SimpleNamespace(place=place)
    first = SyntheticSource(JOB, adapter).batches()
    second = SyntheticSource(replace(JOB, rank=1), adapter).batches()
    whole, _ = source.make_samples(5, 0, 8, SHAPE, 10)
    assert np.array_equal(np.concatenate([next(first), next(second)]), whole)
    assert next(first) is next(first)
    assert placed == [4, 4]


# ---- end to end


@pytest.mark.framework
@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_a_trial_trains_on_photographs(framework: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", sizes=[(48, 36), (36, 48), (300, 200)])
    outcome = run_trial(
        tmp_path, measure=Measure(2, 3), models=("plain-graph:2",), framework=framework, strategies=("local",),
        data=f"imagefolder:{folder}",
    )  # fmt: skip
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.ranks[0].samples == 6
    assert outcome.record.ranks[0].resident_steps
