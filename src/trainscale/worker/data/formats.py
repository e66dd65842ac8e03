"""Reads the published formats: idx files, CIFAR-10's binary records and its pickles. published_files.py checks the
files first.
"""

from __future__ import annotations

import gzip
import math
import pickle
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from .facts import KNOWN, MNIST, TRAIN, VALID, DataError
from .published_files import MAGIC, RECORD, find_edition, read_checksums, verify_path

_MOST_PIXELS = 1 << 32  # bytes of an idx file


def read_split(name: str, directory: str, split: str) -> tuple[Any, Any]:
    """Return all images (images, channels, rows, columns) and labels of a split, in 8 bits. Raises DataError."""
    import numpy as np

    images, labels = zip(*read_files(name, directory, split))
    return np.concatenate(images), np.concatenate(labels)


def read_files(name: str, directory: str, split: str) -> Iterator[tuple[Any, Any]]:
    """Yield the same file by file, so that no second copy of the data set is in memory. Raises DataError."""
    edition, folder = find_edition(name, directory)
    checksums = read_checksums(folder)
    paths = [verify_path(folder, file, checksums) for file in edition.files[split]]
    known, count = KNOWN[name], 0
    expected = {TRAIN: known.train, VALID: known.valid}[split]
    shape = (known.channels, known.image_size, known.image_size)
    for images, labels, path in _read_mnist(paths) if name == MNIST else _read_cifar(paths):
        if images.shape[1:] != shape:
            size = "×".join(map(str, images.shape[2:]))
            raise DataError(f"{paths[0]}: images of {size}; valid: {known.image_size}×{known.image_size}")
        if len(images) != len(labels):
            raise DataError(f"{path}: {len(images):,} images and {len(labels):,} labels; valid: as many of each")
        if labels.max(initial=0) >= known.classes:
            raise DataError(f"{path}: a label is {labels.max()}; valid: 0 to {known.classes - 1}")
        count += len(images)
        yield images, labels
    if checksums is None and count != expected:
        raise DataError(f"{paths[0]}: {count:,} images; valid: {expected:,}")


def _read_mnist(paths: list[str]) -> Iterator[tuple[Any, Any, str]]:
    yield _read_idx(paths[0], 3)[:, None], _read_idx(paths[1], 1), paths[1]


def _read_cifar(paths: list[str]) -> Iterator[tuple[Any, Any, str]]:
    for path in paths:
        yield (*(_read_records if path.endswith(".bin") else _read_pickle)(path), path)


def _read_idx(path: str, axes: int) -> Any:
    """Read an idx file: a magic number, the length of each axis, then bytes."""
    import numpy as np

    try:
        with gzip.open(path) as file:
            header = file.read(4 * (1 + axes))
            numbers = struct.unpack(f">{1 + axes}I", header) if len(header) == 4 * (1 + axes) else (0,)
            length = math.prod(numbers[1:])
            # A small file can unpack to any length, so no more is read than its header says.
            content = file.read(length + 1) if numbers[0] == MAGIC[axes] and length <= _MOST_PIXELS else b""
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if numbers[0] != MAGIC[axes] or len(content) != length:
        raise DataError(f"{path} is not an idx file of {axes} axes")
    return np.frombuffer(content, np.uint8).reshape(numbers[1:])


def _read_records(path: str) -> tuple[Any, Any]:
    """Read records of a label and 3,072 pixels each: red, then green, then blue."""
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
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy.core.numeric", "_frombuffer"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        # The module's name depends on the version of numpy, of the one that wrote and of the one that reads.
        new, old = "numpy._core", "numpy.core"
        module = module.replace(new, old) if not hasattr(np, "_core") else module.replace(old, new)
        return super().find_class(module, name)


def _read_pickle(path: str) -> tuple[Any, Any]:
    import numpy as np

    try:
        with open(path, "rb") as file:  # noqa: PTH123
            content = _ArrayUnpickler(file, encoding="bytes").load()
        if content[b"data"].dtype != np.uint8:
            raise TypeError(f"its images are {content[b'data'].dtype}, not uint8")
        return content[b"data"].reshape(-1, 3, 32, 32), np.asarray(content[b"labels"], np.uint8)
    except MemoryError:
        raise
    except Exception as error:  # bytes that are no such pickle can raise anything
        raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from None
