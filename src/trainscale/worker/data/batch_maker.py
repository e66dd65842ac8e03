"""What a loader process does: write the images of one batch, in 8 bits, and their labels.

A BatchMaker knows the stored data set and the settings of its rank. It keeps the order and the random draws of the
current epoch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..type_aliases import NamedArrays
from . import augment, sampling
from .facts import FOLDER, KNOWN, TRAIN, VALID, parse_data_kind
from .shared_arrays import SharedArrays


@dataclass(frozen=True)
class BatchSettings:
    """Which images a rank's batches are made of, and how."""

    data: str
    image_size: int
    batch: int
    rank: int
    workers: int
    seed: int
    augment: bool


class BatchMaker:
    """Makes batches of images that are all in memory and all of one size."""

    draws_per_image = 3

    def __init__(self, stored: SharedArrays, settings: BatchSettings) -> None:
        self._settings = settings
        self._stored = {name: stored[name] for name in stored.layout}
        self._epoch = -1
        self._order: Any = None
        self._draws: Any = None

    def write_training_batch(self, epoch: int, step: int, pixels: Any, labels: Any) -> Any:
        """Return the numbers of the samples that were written, in their order."""
        settings = self._settings
        if epoch != self._epoch:
            self._start_epoch(epoch)
        chosen = sampling.select_rank_batch(self._order, step, settings.batch, settings.rank, settings.workers)
        draws = None if self._draws is None else self._draws[chosen]
        self._write(TRAIN, chosen, draws, pixels, labels)
        return chosen

    def _start_epoch(self, epoch: int) -> None:
        count, seed = len(self._stored[f"{TRAIN} labels"]), self._settings.seed
        self._order = sampling.shuffle_epoch(count, seed, epoch)
        self._draws = augment.draw_numbers(count, seed, epoch, self.draws_per_image) if self._settings.augment else None
        self._epoch = epoch

    def write_validation_batch(self, step: int, pixels: Any, labels: Any) -> int:
        """Return how many of the images count. The others are black and only fill the batch."""
        settings = self._settings
        count = len(self._stored[f"{VALID} labels"])
        chosen = sampling.select_validation_batch(count, step, settings.batch, settings.rank, settings.workers)
        counted = len(chosen)
        self._write(VALID, chosen, None, pixels[:counted], labels[:counted])
        pixels[counted:], labels[counted:] = 0, 0
        return counted

    def _write(self, split: str, chosen: Any, draws: Any | None, pixels: Any, labels: Any) -> None:
        augment.write_images(pixels, self._stored[f"{split} images"], chosen, draws)
        labels[...] = self._stored[f"{split} labels"][chosen]


class PhotoBatchMaker(BatchMaker):
    """Makes batches of photographs in files, which it decodes when they are needed."""

    draws_per_image = 5  # area, shape, column, row, mirror

    def _write(self, split: str, chosen: Any, draws: Any | None, pixels: Any, labels: Any) -> None:
        from . import folder

        names, ends = self._stored[f"{split} names"], self._stored[f"{split} ends"]
        for row, index in enumerate(chosen):
            first = int(ends[index - 1]) if index else 0
            path = os.fsdecode(names[first : int(ends[index])].tobytes())
            folder.decode_photograph(pixels[row], path, None if draws is None else draws[row])
        labels[...] = self._stored[f"{split} labels"][chosen]


def make_batch_maker(stored: SharedArrays, settings: BatchSettings) -> BatchMaker:
    return (PhotoBatchMaker if parse_data_kind(settings.data) == FOLDER else BatchMaker)(stored, settings)


def load_dataset(data: str, directory: str) -> SharedArrays:
    """Check a data set and read it into shared memory: its images, or the file names of a folder of photographs.

    Raises DataError.
    """
    kind = parse_data_kind(data)
    return _load_file_names(directory) if kind == FOLDER else _load_images(kind, directory)


def _load_file_names(directory: str) -> SharedArrays:
    import numpy as np

    from . import folder

    arrays: NamedArrays = {}
    for split in (TRAIN, VALID):
        photographs = folder.list_photographs(directory, split)
        names = [os.fsencode(path) for path in photographs.paths]
        arrays[f"{split} names"] = np.frombuffer(b"".join(names), np.uint8)
        arrays[f"{split} ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
        arrays[f"{split} labels"] = np.asarray(photographs.labels, np.int64)
    return SharedArrays.from_arrays(arrays)


def _load_images(name: str, directory: str) -> SharedArrays:
    from . import formats, published_files

    known = KNOWN[name]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for split, count in published_files.count_images(name, directory).items():
        shapes[f"{split} images"] = ("|u1", (count, known.channels, known.image_size, known.image_size))
        shapes[f"{split} labels"] = ("<i8", (count,))
    shared = SharedArrays.allocate(shapes)
    for split in (TRAIN, VALID):
        first = 0
        for images, labels in formats.read_files(name, directory, split):
            last = first + len(images)
            shared[f"{split} images"][first:last] = images
            shared[f"{split} labels"][first:last] = labels
            first = last
    return shared
