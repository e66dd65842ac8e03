"""What a loader process does: fill a place with the images of one batch, in 8 bits, and their labels.

A maker knows a set's stored images and the trial's wishes; it keeps the order and the draws of the epoch it is in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import augment, sampling
from .facts import FOLDER, TRAIN, kind_of
from .shared import Shared


@dataclass(frozen=True)
class Wish:
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

    def __init__(self, stored: Shared, wish: Wish) -> None:
        self._stored, self._wish = stored, wish
        self._epoch = -1
        self._order: Any = None
        self._draws: Any = None

    def train(self, epoch: int, step: int, pixels: Any, labels: Any) -> None:
        wish = self._wish
        count = len(self._stored["train labels"])
        if epoch != self._epoch:
            self._order = sampling.order(count, wish.seed, epoch)
            self._draws = augment.draws(count, wish.seed, epoch, self.draws_each) if wish.augment else None
            self._epoch = epoch
        chosen = sampling.part(self._order, step, wish.batch, wish.rank, wish.workers)
        chance = None if self._draws is None else self._draws[chosen]
        self._fill(TRAIN, chosen, chance, pixels, labels)

    def validate(self, step: int, pixels: Any, labels: Any) -> int:
        """How many of the images count: the others only fill the batch up."""
        wish = self._wish
        count = len(self._stored["valid labels"])
        chosen, counted = sampling.validation_part(count, step, wish.batch, wish.rank, wish.workers)
        self._fill("valid", chosen, None, pixels, labels)
        return counted

    def _fill(self, split: str, chosen: Any, chance: Any | None, pixels: Any, labels: Any) -> None:
        pixels[...] = augment.prepare(self._stored[f"{split} images"][chosen], self._wish.image_size, chance)
        labels[...] = self._stored[f"{split} labels"][chosen]


class FolderMaker(Maker):
    """Of photographs in files: each is decoded when it is wanted."""

    draws_each = 5  # area, shape, row, column, mirror

    def _fill(self, split: str, chosen: Any, chance: Any | None, pixels: Any, labels: Any) -> None:
        from . import folder

        names, ends = self._stored[f"{split} names"], self._stored[f"{split} ends"]
        for row, number in enumerate(chosen):
            first = int(ends[number - 1]) if number else 0
            path = names[first : int(ends[number])].tobytes().decode("utf-8", "surrogateescape")
            pixels[row] = folder.decode(path, self._wish.image_size, None if chance is None else chance[row])
        labels[...] = self._stored[f"{split} labels"][chosen]


def maker(stored: Shared, wish: Wish) -> Maker:
    return (FolderMaker if kind_of(wish.data) == FOLDER else Maker)(stored, wish)


def read(data: str, directory: str) -> Shared:
    """A whole set, checked, in shared memory: of a folder of photographs, the names of the files. Raises DataError."""
    arrays: dict[str, Any] = {}
    for split in (TRAIN, "valid"):
        if kind_of(data) == FOLDER:
            from . import folder

            found = folder.listing(directory, split)
            names = [path.encode("utf-8", "surrogateescape") for path in found.paths]
            arrays[f"{split} names"] = np.frombuffer(b"".join(names), np.uint8)
            arrays[f"{split} ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
            arrays[f"{split} labels"] = np.asarray(found.labels, np.int64)
        else:
            from . import formats

            images, labels = formats.read(kind_of(data), directory, split)
            arrays[f"{split} images"], arrays[f"{split} labels"] = images, labels.astype(np.int64)
    return Shared.of(arrays)
