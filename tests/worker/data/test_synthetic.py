"""Synthetic images: random, the same for the same index, shared out over the ranks without overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainscale.worker.config import Config
from trainscale.worker.data import source
from trainscale.worker.data.source import SyntheticSource
from trainscale.worker.job import Device, Job

SHAPE = (3, 8, 8)
CONFIG = Config("torch", "mnist", 4, "allreduce", 8, 10)
JOB = Job("worker", 0, 2, 0, ("127.0.0.1",) * 2, 1, 2, Device(), CONFIG, batch=4, seed=5)


def test_an_image_is_the_same_whatever_batch_it_is_in() -> None:
    whole, labels = source.make_samples(5, 0, 8, SHAPE, 10)
    half, half_labels = source.make_samples(5, 4, 4, SHAPE, 10)
    assert np.array_equal(whole[4:], half)
    assert np.array_equal(labels[4:], half_labels)


def test_images_are_random_and_never_zero_and_labels_are_classes() -> None:
    pixels, labels = source.make_samples(5, 0, 64, SHAPE, 10)
    assert pixels.dtype == np.float32
    assert labels.dtype == np.int64
    assert abs(float(pixels.mean())) < 0.05
    assert 0.9 < float(pixels.std()) < 1.1
    assert not (pixels == 0).all(axis=(1, 2, 3)).any()
    assert set(labels.tolist()) <= set(range(10))
    assert len(set(labels.tolist())) > 3


def test_another_seed_gives_other_images() -> None:
    first, _ = source.make_samples(5, 0, 2, SHAPE, 10)
    other, _ = source.make_samples(6, 0, 2, SHAPE, 10)
    assert not np.array_equal(first, other)


def test_ranks_get_disjoint_parts_and_the_same_batch_in_every_step() -> None:
    placed: list[int] = []

    class Placing:
        """As much of an adapter as a source needs."""

        def place(self, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
            placed.append(len(pixels))
            return pixels

    first = SyntheticSource(JOB, Placing()).batches()
    second = SyntheticSource(replace(JOB, rank=1), Placing()).batches()
    whole, _ = source.make_samples(5, 0, 8, SHAPE, 10)
    assert np.array_equal(np.concatenate([next(first), next(second)]), whole)
    assert next(first) is next(first)
    assert placed == [4, 4]
