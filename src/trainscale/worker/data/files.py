"""The published files of MNIST and CIFAR-10: which there are, whether they are there, whether they are right.

Nothing here reads a pixel, so the controller, which has no numpy, asks it too. formats.py reads what is right.

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
import shlex
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from .facts import CIFAR10, KNOWN, MNIST, TRAIN, VALID, DataError

MAGIC = {3: 2051, 1: 2049}  # of an idx file of bytes with so many axes
RECORD = 3073  # bytes of an image in CIFAR-10's binary files: a label and 3 × 32 × 32 pixels
CHECKSUMS = "checksums.md5"


@dataclass(frozen=True)
class File:
    """A published file: what it is called, how many bytes it has (0 where only the sum is published), their MD5."""

    name: str
    size: int
    md5: str


@dataclass(frozen=True)
class Edition:
    """One form in which a set is published. ``folder``: where its archive puts the files."""

    files: dict[str, tuple[File, ...]]  # by split
    folder: str = ""

    @property
    def all_files(self) -> tuple[File, ...]:
        return tuple(file for files in self.files.values() for file in files)


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


# Where several editions are there, the first counts; it is also the one that «data get» gets.
EDITIONS = {
    MNIST: (_MNIST,),
    CIFAR10: (
        _cifar(".bin", 10_000 * RECORD, _BIN, "cifar-10-batches-bin"),
        _cifar("", 0, _PY, "cifar-10-batches-py"),
    ),
}


def find(name: str, directory: str) -> tuple[Edition, str]:
    """The edition that is in a folder, and the folder itself or the one in it that the archive made."""
    missing = ""
    for edition in EDITIONS[name]:
        for folder in dict.fromkeys((directory, _join(directory, edition.folder))):
            names = [file.name for file in edition.all_files]
            absent = [one for one in names if not os.path.isfile(_join(folder, one))]  # noqa: PTH113
            if not absent:
                return edition, folder
            if len(absent) < len(names) or not missing:
                missing = f"{_join(folder, absent[0])} is missing"
    raise DataError(f"{missing}; get the set with: trainscale data get {name} {shlex.quote(directory)}")


def check(name: str, directory: str) -> None:
    """All files of a set, every byte of them. Raises DataError for the first that is not as it should be."""
    edition, folder = find(name, directory)
    own = own_sums(folder)
    for file in edition.all_files:
        checked(folder, file, own)


def checked(folder: str, file: File, own: dict[str, str] | None) -> str:
    """The path of a file that is what it should be. Raises DataError."""
    path = _join(folder, file.name)
    again = "; remove it and get it again" if own is None else ""
    try:
        size = os.path.getsize(path)  # noqa: PTH202
        if own is None and file.size and size != file.size:
            raise DataError(f"{path} is damaged: it has {size:,} bytes, not {file.size:,}{again}")
        wanted = file.md5 if own is None else own.get(file.name)
        if wanted is None:
            raise DataError(f"{path}: {CHECKSUMS} in the same folder does not name it")
        found = md5_of(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if found != wanted.lower():
        raise DataError(f"{path} is damaged: its MD5 is {found}, not {wanted}{again}")
    return path


def md5_of(path: str) -> str:
    found = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as content:  # noqa: PTH123
        while block := content.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def own_sums(folder: str) -> dict[str, str] | None:
    """Checksums by name from the folder's own list of them; None where it has none."""
    path = _join(folder, CHECKSUMS)
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if not pairs or any(len(pair) != 2 or len(pair[0]) != 32 for pair in pairs):
        raise DataError(f"{path} is not as md5sum writes it; valid: lines of a sum and a file's name")
    return {name.strip().lstrip("*"): md5 for md5, name in pairs}


def count(name: str, directory: str) -> dict[str, int]:
    """How many images each split has, by the heads or sizes of its files. Raises DataError."""
    edition, folder = find(name, directory)
    if own_sums(folder) is None:
        return {TRAIN: KNOWN[name].train, VALID: KNOWN[name].valid}
    return {
        split: sum(_images_in(_join(folder, file.name)) for file in (files[:1] if name == MNIST else files))
        for split, files in edition.files.items()
    }


def _images_in(path: str) -> int:
    if path.endswith(".bin"):
        return os.path.getsize(path) // RECORD  # noqa: PTH202
    if not path.endswith(".gz"):
        with open(path, "rb") as file:  # noqa: PTH123
            try:
                return len(_Labels(file, encoding="bytes").load()[b"labels"])
            except Exception as error:  # whatever bytes that are no pickle make it do
                raise DataError(f"{path} is damaged: {error}") from None
    try:
        with gzip.open(path) as file:
            magic, images = struct.unpack(">2I", file.read(8))
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if magic != MAGIC[3]:
        raise DataError(f"{path} is not an idx file of 3 axes")
    return int(images)


class _Labels(pickle.Unpickler):
    """Reads the labels of a pickle: whatever else it asks for, arrays or mischief, is nothing."""

    class _Nothing:
        def __init__(self, *_: Any) -> None:
            pass

        def __setstate__(self, _: Any) -> None:
            pass

    def find_class(self, module: str, name: str) -> Any:
        # How Python 3 writes the bytes that the keys are; Python 2, which wrote the published files, needs nothing.
        return super().find_class(module, name) if (module, name) == ("_codecs", "encode") else self._Nothing


def _join(folder: str, name: str) -> str:
    return os.path.join(folder, name) if name else folder  # noqa: PTH118
