"""What is known of a data set before any image is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

SYNTHETIC, MNIST, CIFAR10, FOLDER = "synthetic", "mnist", "cifar10", "imagefolder"
SOURCES = {
    SYNTHETIC: "random images, resident on the device",
    MNIST: "60,000 + 10,000 handwritten digits, 28×28, one channel",
    CIFAR10: "50,000 + 10,000 photographs of ten classes, 32×32",
    FOLDER: "a folder with train/ and val/, in each a folder of JPEGs for each class, as ImageNet is stored",
}
TRAIN, VALID = "train", "valid"


class DataError(ValueError):
    """A data set is unusable. The message says what to do."""


@dataclass(frozen=True)
class DatasetFacts:
    """``mean`` and ``deviation`` are of each channel, of pixels from 0 to 1."""

    name: str
    classes: int
    channels: int
    image_size: int  # 0 where images differ in size
    train: int
    valid: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


KNOWN = {
    MNIST: DatasetFacts(MNIST, 10, 1, 28, 60_000, 10_000, (0.1307,), (0.3081,)),
    CIFAR10: DatasetFacts(CIFAR10, 10, 3, 32, 50_000, 10_000, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
# Mean and deviation of ImageNet's training images, which are usual for photographs.
PHOTOGRAPHS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def parse_data_kind(data: str) -> str:
    """Return the kind of a config's data: "imagefolder" for "imagefolder:flowers"."""
    return data.partition(":")[0]


def read_facts(data: str, directory: str) -> DatasetFacts:
    """Return the facts of a data set, after counting what is not published. Raises DataError."""
    from . import folder, published_files

    kind = parse_data_kind(data)
    if kind in KNOWN:
        try:
            counts = published_files.count_images(kind, directory)
        except DataError:  # reported when the files are read
            return KNOWN[kind]
        return replace(KNOWN[kind], train=counts[TRAIN], valid=counts[VALID])
    train, valid = (folder.list_photographs(directory, split) for split in (TRAIN, VALID))
    name = os.path.basename(os.path.normpath(directory))
    return DatasetFacts(name, len(train.classes), 3, 0, len(train.labels), len(valid.labels), *PHOTOGRAPHS)
