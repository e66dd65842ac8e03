"""The published files of MNIST and CIFAR-10: their names and checksums, and what is in them.

CIFAR-10 is accepted as binary files and as pickles, also in the folder that its archive makes.
Other images in these formats (Fashion-MNIST, a part of CIFAR-10) are accepted where the folder
has a file ``checksums.md5``, as ``md5sum`` writes it. Then the images in the files are counted.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import pickle
import shlex
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..regular_files import read_regular
from .facts import CIFAR10, KNOWN, MNIST, TRAIN, VALID, DataError

MAGIC = {3: 2051, 1: 2049}  # of an idx file of bytes, by its number of axes
RECORD = 3073  # bytes of an image in CIFAR-10: a label and 3 × 32 × 32 pixels
CHECKSUMS = "checksums.md5"
_MOST_CHECKSUMS = 1 << 20  # bytes of that file
_MOST_PIXELS = 1 << 32  # bytes of an idx file


@dataclass(frozen=True)
class PublishedFile:
    name: str
    size: int  # in bytes, or 0 where only the checksum is published
    md5: str

    @property
    def split(self) -> str:
        return VALID if self.name.startswith(("t10k", "test")) else TRAIN


@dataclass(frozen=True)
class Edition:
    """One form in which a data set is published."""

    files: tuple[PublishedFile, ...]
    folder: str = ""  # into which its archive puts the files


def _make_cifar_edition(ending: str, size: int, folder: str, *sums: str) -> Edition:
    names = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    return Edition(tuple(PublishedFile(name + ending, size, md5) for name, md5 in zip(names, sums)), folder)


# The first that a folder has counts. The first is also the one to download.
EDITIONS = {
    MNIST: (
        Edition(
            (
                PublishedFile("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                PublishedFile("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
                PublishedFile("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
                PublishedFile("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
    ),
    CIFAR10: (
        _make_cifar_edition(
            ".bin",
            10_000 * RECORD,
            "cifar-10-batches-bin",
            "5dd7e06a14cb22eb9f671a540d1b7c25",
            "5ea93a67294ea407fff1d09f752e9692",
            "942cd6a4bcdd0dd3c604fbe906cb4421",
            "ae636b3ba5c66a11e91e8cb52e771fcb",
            "53f37980c15c3d472c316c40844f3f0d",
            "803d5f7f4d78ea53de84dbe85f74fb6d",
        ),
        _make_cifar_edition(
            "",
            0,
            "cifar-10-batches-py",
            "c99cafc152244af753f735de768cd75f",
            "d4bba439e000b95fd0a9bffe97cbabec",
            "54ebc095f3ab1f0389bbae665268c751",
            "634d18415352ddfa80567beed471001a",
            "482c414d41f54cd18b22e5b47cb7c3cb",
            "40351d587109b95175f43aff81a1287e",
        ),
    ),
}


def find_edition(name: str, directory: str) -> tuple[Edition, str]:
    """Return the edition that a folder has, and the folder of its files."""
    missing = ""
    for edition in EDITIONS[name]:
        inner = [os.path.join(directory, edition.folder)] if edition.folder else []
        for folder in (directory, *inner):
            names = [file.name for file in edition.files]
            paths = [os.path.join(folder, file_name) for file_name in names]
            absent = [path for path in paths if not os.path.isfile(path)]
            if not absent:
                return edition, folder
            if len(absent) < len(names) or not missing:
                missing = f"{absent[0]} is missing"
    raise DataError(f"{missing}; get the set with: trainscale data get {name} {shlex.quote(directory)}")


def check_files(name: str, directory: str) -> None:
    """Check every byte of all files of a data set."""
    edition, folder = find_edition(name, directory)
    checksums = read_checksums(folder)
    for file in edition.files:
        verify_path(folder, file, checksums)


def verify_path(folder: str, file: PublishedFile, checksums: dict[str, str] | None) -> str:
    """Return the path of a file after checking it, by ``checksums`` or the published ones."""
    path = os.path.join(folder, file.name)
    advice = "; remove it and get it again" if checksums is None else ""
    try:
        size = os.path.getsize(path)
        if checksums is None and file.size and size != file.size:
            raise DataError(f"{path} is damaged: it has {size:,} bytes, not {file.size:,}{advice}")
        expected = file.md5 if checksums is None else checksums.get(file.name)
        if expected is None:
            raise DataError(f"{path}: {CHECKSUMS} in the same folder does not name it")
        md5 = hashlib.md5(usedforsecurity=False)
        with open(path, "rb") as content:
            while block := content.read(1 << 20):
                md5.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if md5.hexdigest() != expected.lower():
        raise DataError(f"{path} is damaged: its MD5 is {md5.hexdigest()}, not {expected}{advice}")
    return path


def read_checksums(folder: str) -> dict[str, str] | None:
    """Return the folder's own checksums by file name, or None if it has no list of them."""
    path = os.path.join(folder, CHECKSUMS)
    try:
        lines = read_regular(path, _MOST_CHECKSUMS).decode("utf-8", errors="replace").splitlines()
        pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if not pairs or any(len(pair) != 2 or len(pair[0]) != 32 for pair in pairs):
        raise DataError(f"{path} is not as md5sum writes it; valid: lines of a checksum and a file name")
    return {name.strip().lstrip("*"): md5 for md5, name in pairs}


def count_images(name: str, directory: str) -> dict[str, int]:
    edition, folder = find_edition(name, directory)
    if read_checksums(folder) is None:
        return {TRAIN: KNOWN[name].train, VALID: KNOWN[name].valid}
    counts = {}
    for split in (TRAIN, VALID):
        paths = [os.path.join(folder, file.name) for file in edition.files if file.split == split]
        if name == MNIST:
            counts[split] = len(_read_idx(paths[1], 1))  # the labels
        elif paths[0].endswith(".bin"):
            counts[split] = sum(os.path.getsize(path) // RECORD for path in paths)
        else:
            counts[split] = sum(len(_read_pickle(path)[1]) for path in paths)
    return counts


def read_files(name: str, directory: str, split: str) -> Iterator[tuple[Any, Any]]:
    """Yield the images (images, channels, rows, columns) and labels of each file, in 8 bits."""
    edition, folder = find_edition(name, directory)
    checksums = read_checksums(folder)
    paths = [verify_path(folder, file, checksums) for file in edition.files if file.split == split]
    known = KNOWN[name]
    shape = (known.channels, known.image_size, known.image_size)
    if name == MNIST:
        read: Iterable[Any] = [(_read_idx(paths[0], 3)[:, None], _read_idx(paths[1], 1), paths[1])]
    else:
        readers = [_read_records if path.endswith(".bin") else _read_pickle for path in paths]
        read = ((*reader(path), path) for reader, path in zip(readers, paths))
    for images, labels, path in read:
        if images.shape[1:] != shape:
            size = "×".join(map(str, images.shape[2:]))
            raise DataError(f"{paths[0]}: images of {size}; valid: {known.image_size}×{known.image_size}")
        if len(images) != len(labels):
            raise DataError(f"{path}: {len(images):,} images and {len(labels):,} labels; valid: as many of each")
        if labels.max(initial=0) >= known.classes:
            raise DataError(f"{path}: a label is {labels.max()}; valid: 0 to {known.classes - 1}")
        yield images, labels


def _read_idx(path: str, axes: int) -> Any:
    import numpy as np

    try:
        with gzip.open(path) as file:
            header = file.read(4 * (1 + axes))
            numbers = struct.unpack(f">{1 + axes}I", header) if len(header) == 4 * (1 + axes) else (0,)
            length = math.prod(numbers[1:])
            # A small file can unpack to any length: read what its header says.
            content = file.read(length + 1) if numbers[0] == MAGIC[axes] and length <= _MOST_PIXELS else b""
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if numbers[0] != MAGIC[axes] or len(content) != length:
        raise DataError(f"{path} is not an idx file of {axes} axes")
    return np.frombuffer(content, np.uint8).reshape(numbers[1:])


def _read_records(path: str) -> tuple[Any, Any]:
    import numpy as np

    content = np.fromfile(path, np.uint8)
    if len(content) % RECORD:
        raise DataError(f"{path} is damaged: {len(content):,} bytes are not whole records of {RECORD:,}")
    records = content.reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays and nothing else, because a pickle can run any program."""

    _ALLOWED = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.numeric", "_frombuffer"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        # Its name depends on the numpy that wrote, and on this one.
        new, old = "numpy._core", "numpy.core"
        module = module.replace(new, old)
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace(old, new) if hasattr(np, "_core") else module, name)


def _read_pickle(path: str) -> tuple[Any, Any]:
    import numpy as np

    try:
        with open(path, "rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
        if content[b"data"].dtype != np.uint8:
            raise TypeError(f"its images are {content[b'data'].dtype}, not uint8")
        return content[b"data"].reshape(-1, 3, 32, 32), np.asarray(content[b"labels"], np.uint8)
    except MemoryError:
        raise
    except Exception as error:  # other bytes can raise anything
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from None
