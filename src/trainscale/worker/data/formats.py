"""The published files of MNIST and CIFAR-10, read and checked: size and checksum of each, before any pixel is believed.

CIFAR-10 is published as binary files, and as pickles for Python: either will do, whichever is there. A set that lies in
the folder that its archive makes (``cifar-10-batches-bin``) is found there too.

Other images in the same formats (Fashion-MNIST, a part of CIFAR-10) are read where the folder has a file
``checksums.md5``, as ``md5sum`` writes it: then those sums count, not the published ones, and so do the files' own
numbers of images.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .facts import CIFAR10, KNOWN, MNIST, TRAIN, VALID, DataError

_MAGIC = {3: 2051, 1: 2049}  # of an idx file of bytes with so many axes


@dataclass(frozen=True)
class File:
    """A published file: what it is called, how many bytes it has, their MD5 (none where only the size is published)."""

    name: str
    size: int
    md5: str = ""


@dataclass(frozen=True)
class Edition:
    """One form in which a set is published. ``folder``: where its archive puts the files."""

    files: dict[str, tuple[File, ...]]  # by split
    folder: str = ""


_MNIST = Edition(
    {
        TRAIN: (
            File("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            File("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        ),
        VALID: (
            File("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            File("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    }
)
_BIN = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
)
_PY = (
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
    "40351d587109b95175f43aff81a1287e",
)
_CIFAR_NAMES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def _cifar(ending: str, size: int, sums: tuple[str, ...], folder: str) -> Edition:
    files = [File(name + ending, size, md5) for name, md5 in zip(_CIFAR_NAMES, sums)]
    return Edition({TRAIN: tuple(files[:5]), VALID: tuple(files[5:])}, folder)


# Where several editions are there, the first counts. The sizes of the pickles are not published: 0 is not checked.
EDITIONS = {
    MNIST: (_MNIST,),
    CIFAR10: (
        _cifar(".bin", 30_730_000, _BIN, "cifar-10-batches-bin"),
        _cifar("", 0, _PY, "cifar-10-batches-py"),
    ),
}
CHECKSUMS = "checksums.md5"


def read(name: str, directory: str, split: str) -> tuple[Any, Any]:
    """All images (images, channels, rows, columns) and labels of a split, in 8 bits. Raises DataError."""
    edition, folder = find(name, directory)
    own = own_sums(folder)
    paths = [_checked(os.path.join(folder, file.name), file, own) for file in edition.files[split]]  # noqa: PTH118
    if name == MNIST:
        images, labels = _idx(paths[0], 3)[:, None], _idx(paths[1], 1)
    else:
        parts = [(_cifar_binary if path.endswith(".bin") else _cifar_pickle)(path) for path in paths]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    known, expected = KNOWN[name], {TRAIN: KNOWN[name].train, VALID: KNOWN[name].valid}[split]
    if len(images) != len(labels) or (not own and len(images) != expected):
        raise DataError(f"{paths[0]}: {len(images)} images and {len(labels)} labels; valid: {expected} of each")
    if labels.max(initial=0) >= known.classes:
        raise DataError(f"{paths[-1]}: a label is {labels.max()}; valid: 0 to {known.classes - 1}")
    if images.shape[1:] != (known.channels, known.image_size, known.image_size):
        raise DataError(f"{paths[0]}: images of {images.shape[2]}×{images.shape[3]}; valid: {known.image_size}")
    return images, labels


def find(name: str, directory: str) -> tuple[Edition, str]:
    """The edition that is in a folder, and the folder itself or the one in it that the archive made."""
    missing = ""
    for edition in EDITIONS[name]:
        for folder in (directory, os.path.join(directory, edition.folder)):  # noqa: PTH118
            names = [file.name for files in edition.files.values() for file in files]
            absent = [one for one in names if not os.path.exists(os.path.join(folder, one))]  # noqa: PTH110, PTH118
            if not absent:
                return edition, folder
            if len(absent) < len(names) or not missing:
                missing = f"{os.path.join(folder, absent[0])} is missing"  # noqa: PTH118
    raise DataError(f"{missing}; get the set with: trainscale data get {name} {directory}")


def own_sums(folder: str) -> dict[str, str]:
    """Checksums by name from the folder's own list of them, if it has one."""
    try:
        with open(os.path.join(folder, CHECKSUMS)) as lines:  # noqa: PTH118, PTH123
            pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    except FileNotFoundError:
        return {}
    if any(len(pair) != 2 for pair in pairs):
        raise DataError(f"{os.path.join(folder, CHECKSUMS)}: not as md5sum writes it")  # noqa: PTH118
    return {name.strip().lstrip("*"): md5 for md5, name in pairs}


def _checked(path: str, file: File, own: dict[str, str]) -> str:
    """The path of a file that is what it should be."""
    size = os.path.getsize(path)  # noqa: PTH202
    if not own and file.size and size != file.size:
        raise DataError(f"{path} is damaged: it has {size:,} bytes, not {file.size:,}; remove it and get it again")
    wanted = own.get(file.name) if own else file.md5
    if wanted is None:
        raise DataError(f"{path}: {CHECKSUMS} in the same folder does not name it")
    with open(path, "rb") as content:  # noqa: PTH123
        found = hashlib.md5(usedforsecurity=False)
        while block := content.read(1 << 20):
            found.update(block)
    if found.hexdigest() != wanted:
        raise DataError(f"{path} is damaged: its MD5 is {found.hexdigest()}, not {wanted}; remove it and get it again")
    return path


def _idx(path: str, axes: int) -> Any:
    """An idx file: a magic number, the length of each axis, then bytes."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    head = 4 * (1 + axes)
    numbers = struct.unpack(f">{1 + axes}I", content[:head]) if len(content) >= head else (0,)
    if numbers[0] != _MAGIC[axes] or len(content) - head != int(np.prod(numbers[1:], dtype=np.int64)):
        raise DataError(f"{path} is not an idx file of {axes} axes")
    return np.frombuffer(content, np.uint8, offset=head).reshape(numbers[1:])


def _cifar_binary(path: str) -> tuple[Any, Any]:
    """Records of a label and 3,072 pixels, red before green before blue."""
    content = np.fromfile(path, np.uint8)
    if len(content) % 3073:
        raise DataError(f"{path} is damaged: {len(content):,} bytes are not whole records of 3,073")
    records = content.reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


class _Arrays(pickle.Unpickler):
    """Pickles of arrays and nothing else: a pickle can run any program."""

    _ALLOWED = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core") if hasattr(np, "_core") else module, name)


def _cifar_pickle(path: str) -> tuple[Any, Any]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found = _Arrays(file, encoding="bytes").load()
        return found[b"data"].reshape(-1, 3, 32, 32), np.asarray(found[b"labels"], np.uint8)
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
