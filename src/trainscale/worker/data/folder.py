"""Photographs in folders, as ImageNet lies on disk: ``train/`` and ``val/``, in each a folder for each class. Any size.

Decoded by Pillow, the one thing that a loader process needs besides numpy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .facts import TRAIN, VALID, DataError

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_FOLDERS = {TRAIN: "train", VALID: "val"}
# As the training of ImageNet networks does it since GoogLeNet: a part of at least 8 % of the photograph's area, a
# little wider or higher than it was; in use, the middle of a photograph whose shorter side is 256 of 224 pixels.
_LEAST_AREA, _WIDEST = 0.08, 4 / 3
_AROUND = 256 / 224


@dataclass(frozen=True)
class Listing:
    paths: list[str]
    labels: list[int]
    classes: list[str]


def listing(directory: str, split: str) -> Listing:
    """Every photograph of a split with the number of its class, in the order of names. Raises DataError."""
    classes = _classes(directory, TRAIN)
    top = os.path.join(directory, _FOLDERS[split])  # noqa: PTH118
    if split != TRAIN:
        strange = sorted(set(_classes(directory, split)) - set(classes))
        if strange:
            raise DataError(f"{os.path.join(top, strange[0])} is a class that train/ does not have")  # noqa: PTH118
    paths, labels = [], []
    for number, name in enumerate(classes):
        folder = os.path.join(top, name)  # noqa: PTH118
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
        found = [os.path.join(folder, one) for one in names if one.lower().endswith(_ENDINGS)]  # noqa: PTH118
        paths += found
        labels += [number] * len(found)
    if not paths:
        raise DataError(
            f"{top} has no photographs; valid: files that end in {', '.join(_ENDINGS)}, in a folder a class"
        )
    return Listing(paths, labels, classes)


def _classes(directory: str, split: str) -> list[str]:
    top = os.path.join(directory, _FOLDERS[split])  # noqa: PTH118
    try:
        with os.scandir(top) as entries:
            found = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{top} cannot be read: {error.strerror}; valid: a folder with train/ and val/") from None
    if not found:
        raise DataError(f"{top} has no folders; valid: a folder of photographs for each class")
    return found


def decode(place: Any, path: str, chance: Any | None) -> None:
    """Writes a photograph to ``place`` (3, size, size): with ``chance`` (five numbers: area, shape, column, row,
    mirror) a random part of it, without, its middle. As it is stored: a note in the file that it is to be turned (EXIF)
    is passed over, as torchvision and TensorFlow do. Raises DataError.
    """
    import numpy as np

    image, size = _pillow(), place.shape[-1]
    with _named(path), image.open(path) as photograph:
        wide, high = photograph.size
        box = _middle(wide, high) if chance is None else _part(wide, high, chance)
        # JPEGs can be decoded at a half, a quarter or an eighth, and that is most of the work.
        drafted = photograph.draft("RGB", (math.ceil(size * wide / box[2]), math.ceil(size * high / box[3])))
        scale = drafted[1][2] / wide if drafted else 1.0  # draft gives back the box that has the whole picture
        left, top, width, height = (length * scale for length in box)
        corners = (left, top, left + width, top + height)
        small = _rgb(photograph).resize((size, size), image.Resampling.BILINEAR, corners, reducing_gap=2.0)
    mirrored = chance is not None and chance[4] < 0.5
    for colour, band in zip(place, small.split()):
        pixels = np.frombuffer(band.tobytes(), np.uint8).reshape(size, size)
        colour[...] = pixels[:, ::-1] if mirrored else pixels


def seen(path: str) -> tuple[int, int, int]:
    """Width, height and bytes of a photograph that can be decoded to its end. Raises DataError."""
    image = _pillow()
    with _named(path), image.open(path) as photograph:
        size = photograph.size
        photograph.draft("RGB", (1, 1))  # smaller is faster, and every byte is read all the same
        photograph.load()
    return (*size, os.path.getsize(path))  # noqa: PTH202


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("photographs need Pillow, which this Python has not: pip install pillow") from None
    return Image


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Whatever is wrong with a photograph, with its name."""
    try:
        yield
    except MemoryError:
        raise
    except (PermissionError, FileNotFoundError) as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # decoders of a dozen formats, given bytes that are none of them
        raise DataError(f"{path} is damaged, or no photograph: {error}") from None


def _rgb(photograph: Any) -> Any:
    """Grey, CMYK, palettes, transparency, as red, green and blue. What is that already is not copied."""
    if photograph.mode == "RGB":
        return photograph
    if photograph.mode.startswith("I;16"):  # to 8 bits by convert, all but the darkest would be white
        photograph = photograph.point(lambda value: value / 256).convert("L")
    if photograph.mode == "P" and "transparency" in photograph.info:
        photograph = photograph.convert("RGBA")
    return photograph.convert("RGB")


def _part(wide: int, high: int, chance: Any) -> tuple[float, float, float, float]:
    """Left, top, width and height."""
    area = wide * high * (_LEAST_AREA + (1 - _LEAST_AREA) * float(chance[0]))
    ratio = math.exp((2 * float(chance[1]) - 1) * math.log(_WIDEST))
    width, height = min(wide, math.sqrt(area * ratio)), min(high, math.sqrt(area / ratio))
    return (wide - width) * float(chance[2]), (high - height) * float(chance[3]), width, height


def _middle(wide: int, high: int) -> tuple[float, float, float, float]:
    side = min(wide, high) / _AROUND
    return (wide - side) / 2, (high - side) / 2, side, side
