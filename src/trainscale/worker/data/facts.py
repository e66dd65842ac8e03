"""What is known of a set of images before any is read: how many, how large, of how many classes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

SYNTHETIC, MNIST, CIFAR10, FOLDER = "synthetic", "mnist", "cifar10", "imagefolder"
SOURCES = {
    SYNTHETIC: "random images, resident on the device",
    MNIST: "60,000 + 10,000 handwritten digits, 28×28, one channel",
    CIFAR10: "50,000 + 10,000 photographs of ten classes, 32×32",
    FOLDER: "a folder with train/ and val/, in each a folder of JPEGs for each class, as ImageNet lies on disk",
}
TRAIN, VALID = "train", "valid"


class DataError(ValueError):
    """What is wrong with a set of images, for the person: which file, what it should be, what to do."""


@dataclass(frozen=True)
class DatasetFacts:
    """Of one set. ``mean`` and ``deviation`` are of each channel, of pixels from 0 to 1: networks are given
    (pixel - mean) / deviation. ``image_size`` is 0 where images have sizes of their own.
    """

    name: str
    classes: int
    channels: int
    image_size: int
    train: int
    valid: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


KNOWN = {
    MNIST: DatasetFacts(MNIST, 10, 1, 28, 60_000, 10_000, (0.1307,), (0.3081,)),
    CIFAR10: DatasetFacts(CIFAR10, 10, 3, 32, 50_000, 10_000, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
# Of ImageNet's training images; usual for photographs.
PHOTOGRAPHS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def kind_of(data: str) -> str:
    """«cifar10» of «cifar10», «imagefolder» of «imagefolder:flowers»: what stands in a config names the set."""
    return data.partition(":")[0]


def read_facts(data: str, directory: str) -> DatasetFacts:
    """The facts of a set; of a folder of photographs, or of files that are not the published ones, they are counted.
    Raises DataError.
    """
    if kind_of(data) in KNOWN:
        return _published(kind_of(data), directory)
    from . import folder

    train, valid = (folder.listing(directory, split) for split in (TRAIN, VALID))
    name = os.path.basename(os.path.normpath(directory))  # noqa: PTH119
    return DatasetFacts(name, len(train.classes), 3, 0, len(train.labels), len(valid.labels), *PHOTOGRAPHS)


def _published(name: str, directory: str) -> DatasetFacts:
    from . import files

    try:
        counts = files.count(name, directory)
    except DataError:  # whoever reads it will say so; what is published is known
        return KNOWN[name]
    return replace(KNOWN[name], train=counts[TRAIN], valid=counts[VALID])
