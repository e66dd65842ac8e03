"""Small data sets in the published formats. Every class has a pattern of its own, so a network that learns at all
learns them within an epoch or two.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainscale.worker.data.published_files import CHECKSUMS, read_files


def pictures(count: int, channels: int, size: int, seed: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return 8-bit images and their classes. Each class is a pattern of large blocks, covered with noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count).astype(np.uint8)
    blocks = np.random.default_rng(0).integers(40, 215, (classes, channels, 4, 4))
    patterns = blocks.repeat(-(-size // 4), 2).repeat(-(-size // 4), 3)[:, :, :size, :size]
    noise = random.integers(-40, 41, (count, channels, size, size))
    return (patterns[labels] + noise).astype(np.uint8), labels


def write_cifar10(folder: Path, train: int = 500, valid: int = 103) -> Path:
    """Write five files of ``train / 5`` images each, and one for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = pictures(train, 3, 32, seed=1)
    for number, (part, truth) in enumerate(zip(np.split(images, 5), np.split(labels, 5), strict=True), 1):
        _write_records(folder / f"data_batch_{number}.bin", part, truth)
    _write_records(folder / "test_batch.bin", *pictures(valid, 3, 32, seed=2))
    return _write_checksums(folder)


def write_mnist(folder: Path, train: int = 500, valid: int = 103) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 1), ("t10k", valid, 2)):
        images, labels = pictures(count, 1, 28, seed)
        _write_idx(folder / f"{name}-images-idx3-ubyte.gz", images[:, 0])
        _write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)
    return _write_checksums(folder)


def _write_records(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    path.write_bytes(np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes())


def _write_idx(path: Path, values: np.ndarray) -> None:
    head = struct.pack(f">{1 + values.ndim}I", 2048 + values.ndim, *values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes(), mtime=0))


def _write_checksums(folder: Path) -> Path:
    """Write a list of checksums, because these are not the published files."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(sums))
    return folder


def read_split(name: str, directory: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all images and labels of a split, as the worker reads them."""
    images, labels = zip(*read_files(name, directory, split), strict=True)
    return np.concatenate(images), np.concatenate(labels)


_HOME = Path(__file__).parents[2].parent / "shared" / "data"


def real(name: str) -> Path:
    """Return the folder of a real data set, or skip the test."""
    if not (_HOME / name).is_dir():
        pytest.skip(f"there is no real data at ../shared/data/{name}")
    return _HOME / name


def picture(wide: int, high: int, seed: int = 0) -> Image.Image:
    """Return a smooth picture with one dominant colour, which JPEG compression hardly changes."""
    down, across = np.mgrid[0:high, 0:wide]
    random = np.random.default_rng(seed)
    base = random.integers(60, 180, 3)
    bands = [base[i] + 50 * np.sin(down / 9 + i) + 20 * np.cos(across / 7 - i) for i in range(3)]
    return Image.fromarray(np.stack(bands, -1).clip(0, 255).astype(np.uint8))


def write_folder(
    folder: Path, sizes: Sequence[tuple[int, int]] = ((48, 36), (36, 48)), classes: Sequence[str] = ("ant", "bee")
) -> Path:
    """Write train/ and val/, each with a folder per class, each with a JPEG of each size."""
    for split in ("train", "val"):
        for number, name in enumerate(classes):
            class_folder = folder / split / name
            class_folder.mkdir(parents=True)
            for size, (wide, high) in enumerate(sizes):
                picture(wide, high, seed=number).save(class_folder / f"{size}.jpg", quality=95)
    return folder
