"""The samples of every rank in the first steps of a trial, as its own sources give them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from ..data import synthetic
from ..data.facts import SYNTHETIC
from ..data.source import DatasetSource
from ..job import Job
from ..models import find_samples
from . import STEPS


class RankBatches:
    """Gives samples (numpy, channels first, float32) and labels. Real images are kept in 8 bits."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pixels: dict[int, list[Any]] = {}  # by rank: of each step the pixels, labels and normalization

    def make_batch(self, rank: int, step: int) -> tuple[Any, Any]:
        """Return what a rank trains on in a step; the first step is number 0."""
        job, config = self._job, self._job.config
        if config.data == SYNTHETIC:  # the same samples in every step
            samples = find_samples(config.model)
            shape, first = samples.shape(config), rank * job.batch
            return synthetic.make_samples(job.seed, first, job.batch, shape, config.classes, samples.dtype)
        if rank not in self._pixels:
            self._pixels[rank] = self._load(rank)
        pixels, labels, normalization = self._pixels[rank][step]
        return normalization(pixels), labels

    def describe(self, workers: int) -> list[float]:
        """Return the standard deviation of the values of the first step's samples, how many of these samples are copies
        of another one, how many labels occur, and how many samples there are: of rank 0 and of the last rank.
        """
        import numpy as np

        batches = [self.make_batch(rank, 0) for rank in {0, workers - 1}]
        samples = np.concatenate([samples for samples, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        copies = len(samples) - len({sample.tobytes() for sample in samples})
        return [float(samples.std(dtype="f8")), copies, len(np.unique(labels)), len(samples)]

    def _load(self, rank: int) -> list[Any]:
        config = replace(self._job.config, loaders=1)
        collector: Any = _PixelCollector()
        source = DatasetSource(replace(self._job, rank=rank, config=config), collector)
        try:
            return list(islice(source.batches(), STEPS))
        finally:
            source.close()


class _PixelCollector:
    """Stands in for the adapter: copies the pixels, which the loader overwrites."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[Any, Any, Any]:
        return pixels.copy(), labels.copy(), normalization
