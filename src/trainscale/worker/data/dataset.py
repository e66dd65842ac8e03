"""The batches of a data set, endless or in epochs. The adapter normalizes images of 8 bits."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..job import Job
from ..sample import SamplesTracker
from .facts import FOLDER, SYNTHETIC, DataError, DatasetFacts, parse_data_kind, read_facts
from .loader import BatchRequest, LoadedBatch, Loader, LoaderError, count_steps_per_epoch, count_validation_steps
from .source import Normalization

if TYPE_CHECKING:
    from ..frameworks.base import Adapter

_MOST_LOADERS = 8  # a GPU's share of a machine's cores; more of them hinder each other


class DatasetSource:
    def __init__(self, job: Job, adapter: Adapter) -> None:
        self.facts = read_dataset_facts(job)
        self._job, self._adapter = job, adapter
        self._normalization = Normalization(self.facts.mean, self.facts.deviation)
        self.steps = count_steps_per_epoch(self.facts.train, job.batch, job.workers)
        self._validation_steps = count_validation_steps(self.facts.valid, job.batch, job.workers)
        self.tracker = SamplesTracker(self.facts.train, self.steps * job.batch)
        with _name_host_in_errors(job):
            self._loader = Loader(job, choose_loader_count(job))

    @property
    def waited_seconds(self) -> float:
        return self._loader.waited_seconds

    def batches(self) -> Iterator[Any]:
        return self._train(self._load_batches(self._make_requests(validation_steps=0)))

    def load_epoch(self, number: int) -> Iterator[Any]:
        """Yield an epoch. Epochs are taken in order, and the validation set after each."""
        if number == 0:
            self._stream = self._load_batches(self._make_requests(self._validation_steps))
        return self._train(itertools.islice(self._stream, self.steps))

    def load_validation_set(self) -> Iterator[tuple[Any, Any, int]]:
        """Yield placed batches, with their labels and how many of their images count."""
        for batch in itertools.islice(self._stream, self._validation_steps):
            yield self._place(batch), batch.labels, batch.counted

    def load_first_batch(self) -> Any:
        """Return the batch of the first step again. Its samples are not counted as seen."""
        return self._place(next(self._load_batches([BatchRequest(0, 0)])))

    def _train(self, batches: Iterator[LoadedBatch]) -> Iterator[Any]:
        """Yield placed training batches, and count their samples as they are handed out."""
        for batch in batches:
            assert batch.epoch is not None
            self.tracker.add(batch.epoch, batch.samples, batch.hash_sum)
            yield self._place(batch)

    def _place(self, batch: LoadedBatch) -> Any:
        return self._adapter.place_pixels(batch.pixels, batch.labels, self._normalization)

    def _load_batches(self, requests: Iterable[BatchRequest]) -> Iterator[LoadedBatch]:
        with _name_host_in_errors(self._job):
            yield from self._loader.load_batches(requests)

    def _make_requests(self, validation_steps: int) -> Iterator[BatchRequest]:
        for epoch in itertools.count():
            yield from (BatchRequest(step, epoch) for step in range(self.steps))
            yield from map(BatchRequest, range(validation_steps))

    def close(self) -> None:
        self._loader.close()


def count_updates_per_epoch(job: Job) -> int:
    """Return the updates per epoch, 0 without epochs. Asynchronous workers count as one."""
    if job.config.data == SYNTHETIC or not job.config.trains_epochs:
        return 0
    return count_steps_per_epoch(read_dataset_facts(job).train, job.batch, job.workers)


def read_dataset_facts(job: Job) -> DatasetFacts:
    with _name_host_in_errors(job):
        return _read_facts_once(job.config.data, job.data_dir)


# Listing a folder of a million photographs takes a while.
_read_facts_once = lru_cache(maxsize=1)(read_facts)


@contextmanager
def _name_host_in_errors(job: Job) -> Iterator[None]:
    """Add the host's name to errors where a trial has several hosts."""
    try:
        yield
    except (DataError, LoaderError) as error:
        if len({*job.addresses}) < 2:
            raise
        raise type(error)(f"on host {socket.gethostname()}: {error}") from None


def choose_loader_count(job: Job) -> int:
    """Return the config's number of loader processes, or one that suits images and cores."""
    if job.config.loaders:
        return job.config.loaders
    if job.device.kind == "cpu" and parse_data_kind(job.config.data) != FOLDER:
        return 1  # small images take a few per cent of a core
    ranks_here = sum(address == job.addresses[job.rank] for address in job.addresses[: job.workers])
    cores = len(os.sched_getaffinity(0))
    return max(1, min(_MOST_LOADERS, len(job.device.cores) or cores // max(1, ranks_here)))
