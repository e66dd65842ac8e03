"""The reference trains on the samples that each rank trains on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_sets
from jobs import make_config, make_job

from trainscale.worker.data import loader, source
from trainscale.worker.data.facts import KNOWN
from trainscale.worker.data.source import Normalization
from trainscale.worker.witness.expectation import RankBatches


def test_synthetic_samples_are_those_of_the_rank_in_every_step() -> None:
    config = make_config("allreduce", channels=1)
    job = make_job(config=config, workers=3, addresses=("127.0.0.1",) * 3)
    rank_batches = RankBatches(job)
    for rank in range(3):
        placed = source.make_batch(replace(job, rank=rank), lambda *arrays: arrays)
        for step in range(2):
            for seen, expected in zip(rank_batches.make_batch(rank, step), placed, strict=True):
                assert (seen == expected).all()


@pytest.mark.processes
@pytest.mark.parametrize("augment", [False, True])
def test_real_images_are_those_of_the_rank_and_step(tmp_path: Path, augment: bool) -> None:
    folder = small_sets.write_cifar10(tmp_path / "cifar10")
    config = make_config("allreduce", model="resnet50-cifar", data="cifar10", image_size=32, augment=augment)
    job = make_job(config=config, workers=2, addresses=("127.0.0.1",) * 2, data_dir=str(folder), batch=6)
    rank_batches = RankBatches(job)
    images, labels = small_sets.pictures(500, 3, 32, seed=1)
    order = loader.shuffle_epoch(500, job.seed, 0)
    normalization = Normalization(KNOWN["cifar10"].mean, KNOWN["cifar10"].deviation)
    for rank, step in ((1, 0), (0, 0), (0, 1), (1, 1)):
        chosen = loader.select_rank_batch(order, step, 6, rank, 2)
        samples, truth = rank_batches.make_batch(rank, step)
        assert (truth == labels[chosen]).all()
        assert samples.shape == (6, 3, 32, 32)
        assert np.array_equal(samples, normalization(images[chosen])) is not augment
