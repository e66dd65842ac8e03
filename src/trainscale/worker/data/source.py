"""Where a rank's batches come from, placed where the framework wants them.

A source gives an endless stream for measuring speed, and epochs and a validation set for training to an accuracy. Real
images go through the loader processes in 8 bits; the adapter makes numbers of them.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..frameworks.base import Adapter
from ..job import Job
from . import synthetic
from .facts import FOLDER, MNIST, SYNTHETIC, DataError, DatasetFacts, kind_of, read_facts
from .loader import Loader, LoaderError, Request
from .making import BatchRequest, read
from .sampling import steps_per_epoch, validation_steps

_MOST_LOADERS = 8  # a GPU's share of a machine's cores; more of them only get in each other's way


@dataclass(frozen=True)
class Normal:
    """(pixel / 255 - mean) / deviation of each channel, as one multiplication and one addition."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(1 / (255 * deviation) for deviation in self.deviation)

    @property
    def offsets(self) -> tuple[float, ...]:
        return tuple(-mean / deviation for mean, deviation in zip(self.mean, self.deviation))

    def __call__(self, pixels: Any) -> Any:
        """32-bit numbers of 8-bit pixels (images, channels, rows, columns)."""
        import numpy as np

        result = np.empty(pixels.shape, np.float32)
        for channel, (factor, offset) in enumerate(zip(self.factors, self.offsets)):
            np.multiply(pixels[:, channel], np.float32(factor), out=result[:, channel], dtype=np.float32)
            result[:, channel] += np.float32(offset)
        return result


class Synthetic:
    """The same batch for ever, placed on the device once: no input pipeline is in the way."""

    waited_seconds = 0.0

    def __init__(self, job: Job, adapter: Adapter) -> None:
        self._batch = synthetic.batch(job, adapter.place)

    def batches(self) -> Iterator[Any]:
        return itertools.repeat(self._batch)

    def close(self) -> None:
        """Nothing is open."""


class Real:
    """Images of a set, through loader processes."""

    def __init__(self, job: Job, adapter: Adapter) -> None:
        config = job.config
        self.facts = facts(job)
        self._job, self._adapter = job, adapter
        self._normal = Normal(self.facts.mean, self.facts.deviation)
        augment = config.augment and kind_of(config.data) != MNIST  # a mirrored digit is none
        wish = BatchRequest(config.data, config.image_size, job.batch, job.rank, job.workers, job.seed, augment)
        self.steps = steps_per_epoch(self.facts.train, job.batch, job.workers)
        shape = (self.facts.channels, config.image_size, config.image_size)
        self._next_epoch = 0
        with _with_host(job):
            stored = read(config.data, job.data_dir)
        self._loader = Loader(stored, wish, shape, loaders(job))

    @property
    def waited_seconds(self) -> float:
        return self._loader.waited_seconds

    def batches(self) -> Iterator[Any]:
        """Epoch after epoch, without an end."""
        return self._placed(itertools.chain.from_iterable(map(self._training, itertools.count())))

    def epoch(self, number: int) -> Iterator[Any]:
        self._next_epoch = number + 1
        return self._placed(self._training(number), then=self._validating())

    def validation(self) -> Iterator[tuple[Any, Any, int]]:
        """A placed batch, its labels, and how many of its images count."""
        for pixels, labels, counted in self._made(self._validating(), self._training(self._next_epoch)):
            yield self._adapter.place_pixels(pixels, labels, self._normal), labels, counted

    def _placed(self, requests: Iterator[Request], then: Iterable[Request] = ()) -> Iterator[Any]:
        for pixels, labels, _ in self._made(requests, then):
            yield self._adapter.place_pixels(pixels, labels, self._normal)

    def _made(self, requests: Iterable[Request], then: Iterable[Request]) -> Iterator[tuple[Any, Any, int]]:
        with _with_host(self._job):
            yield from self._loader.batches(requests, then)

    def _training(self, epoch: int) -> Iterator[Request]:
        return (("train", epoch, step) for step in range(self.steps))

    def _validating(self) -> Iterator[Request]:
        job = self._job
        return (("validate", step) for step in range(validation_steps(self.facts.valid, job.batch, job.workers)))

    def close(self) -> None:
        self._loader.close()


def open_source(job: Job, adapter: Adapter) -> Any:
    return Synthetic(job, adapter) if job.config.data == SYNTHETIC else Real(job, adapter)


def updates_per_epoch(job: Job) -> int:
    """Of the whole cluster's weights: with servers that apply every gradient as it comes, as many as there are
    batches. For learning rates that change; 0 where nothing changes.
    """
    if job.config.data == SYNTHETIC or not job.config.epochs:
        return 0
    return steps_per_epoch(facts(job).train, job.batch, job.workers)


def facts(job: Job) -> DatasetFacts:
    """Of the images that a job trains on. Raises DataError."""
    with _with_host(job):
        return _look_once(job.config.data, job.data_dir)


# A folder of a million photographs takes its time to list.
_look_once = lru_cache(maxsize=1)(read_facts)


@contextmanager
def _with_host(job: Job) -> Iterator[None]:
    """What is wrong with images is wrong on one host, and its name is told where there are several."""
    try:
        yield
    except (DataError, LoaderError) as error:
        if len({*job.addresses}) < 2:
            raise
        raise type(error)(f"on host {socket.gethostname()}: {error}") from None


def loaders(job: Job) -> int:
    """How many processes: as asked for, or what suits the images and the rank's share of the cores."""
    asked = job.config.loaders
    if asked:
        return int(asked)
    here = sum(address == job.addresses[job.rank] for address in job.addresses[: job.workers])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = len(job.device.cores) or cores // max(1, here)
    if job.device.kind == "cpu" and kind_of(job.config.data) != FOLDER:
        return 1  # small images cost a few per cent of a core
    return max(1, min(_MOST_LOADERS, share))
