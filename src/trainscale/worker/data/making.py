"""What a loader process does: fill a place with the images of one batch, in 8 bits, and their labels.

A maker knows a set's stored images and the trial's wishes; it keeps the order and the draws of the epoch it is in.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from . import augment, sampling
from .facts import FOLDER, KNOWN, TRAIN, VALID, kind_of
from .shared import Shared


@dataclass(frozen=True)
class BatchRequest:
    """Which images, and how many of them are a batch of this rank."""

    data: str
    image_size: int
    batch: int
    rank: int
    workers: int
    seed: int
    augment: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Maker:
    """Of images that are all in memory, all of one size."""

    draws_each = 3

    def __init__(self, stored: Shared, wish: BatchRequest) -> None:
        self._wish = wish
        self._stored = {name: stored[name] for name in stored.layout}
        self._epoch = -1
        self._order: Any = None
        self._draws: Any = None

    def train(self, epoch: int, step: int, pixels: Any, labels: Any) -> None:
        wish = self._wish
        count = len(self._stored[f"{TRAIN} labels"])
        if epoch != self._epoch:
            self._order = sampling.order(count, wish.seed, epoch)
            self._draws = augment.draws(count, wish.seed, epoch, self.draws_each) if wish.augment else None
            self._epoch = epoch
        chosen = sampling.part(self._order, step, wish.batch, wish.rank, wish.workers)
        chance = None if self._draws is None else self._draws[chosen]
        self._fill(TRAIN, chosen, chance, pixels, labels)

    def validate(self, step: int, pixels: Any, labels: Any) -> int:
        """How many of the images count: the others are black, and only fill the batch up."""
        wish = self._wish
        count = len(self._stored[f"{VALID} labels"])
        chosen = sampling.validation_part(count, step, wish.batch, wish.rank, wish.workers)
        counted = len(chosen)
        self._fill(VALID, chosen, None, pixels[:counted], labels[:counted])
        pixels[counted:], labels[counted:] = 0, 0
        return counted

    def _fill(self, split: str, chosen: Any, chance: Any | None, pixels: Any, labels: Any) -> None:
        augment.fill(pixels, self._stored[f"{split} images"], chosen, chance)
        labels[...] = self._stored[f"{split} labels"][chosen]


class FolderMaker(Maker):
    """Of photographs in files: each is decoded when it is wanted."""

    draws_each = 5  # area, shape, column, row, mirror

    def _fill(self, split: str, chosen: Any, chance: Any | None, pixels: Any, labels: Any) -> None:
        from . import folder

        names, ends = self._stored[f"{split} names"], self._stored[f"{split} ends"]
        for row, number in enumerate(chosen):
            first = int(ends[number - 1]) if number else 0
            path = os.fsdecode(names[first : int(ends[number])].tobytes())
            folder.decode(pixels[row], path, None if chance is None else chance[row])
        labels[...] = self._stored[f"{split} labels"][chosen]


def maker(stored: Shared, wish: BatchRequest) -> Maker:
    return (FolderMaker if kind_of(wish.data) == FOLDER else Maker)(stored, wish)


def read(data: str, directory: str) -> Shared:
    """A whole set, checked, in shared memory: of a folder of photographs, the names of the files. Raises DataError."""
    return _names(directory) if kind_of(data) == FOLDER else _images(kind_of(data), directory)


def _names(directory: str) -> Shared:
    import numpy as np

    from . import folder

    arrays: dict[str, Any] = {}
    for split in (TRAIN, VALID):
        found = folder.listing(directory, split)
        names = [os.fsencode(path) for path in found.paths]
        arrays[f"{split} names"] = np.frombuffer(b"".join(names), np.uint8)
        arrays[f"{split} ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
        arrays[f"{split} labels"] = np.asarray(found.labels, np.int64)
    return Shared.of(arrays)


def _images(name: str, directory: str) -> Shared:
    from . import files, formats

    known = KNOWN[name]
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
    for split, count in files.count(name, directory).items():
        wanted[f"{split} images"] = ("|u1", (count, known.channels, known.image_size, known.image_size))
        wanted[f"{split} labels"] = ("<i8", (count,))
    shared = Shared.make(wanted)
    for split in (TRAIN, VALID):
        first = 0
        for images, labels in formats.parts(name, directory, split):
            last = first + len(images)
            shared[f"{split} images"][first:last] = images
            shared[f"{split} labels"][first:last] = labels
            first = last
    return shared
