"""Photographs in folders, as ImageNet lies on disk: ``train/`` and ``val/``, in each a folder for each class. Any size.

Decoded by Pillow, the one thing that a loader process needs besides numpy.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .facts import TRAIN, DataError

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_FOLDERS = {TRAIN: "train", "valid": "val"}
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


def decode(path: str, size: int, chance: Any | None) -> Any:
    """A photograph as (3, size, size): with ``chance`` (five numbers) a random part of it, without, its middle."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError("photographs need Pillow, which this Python has not: pip install pillow") from None
    try:
        with Image.open(path) as photograph:
            box = _middle(*photograph.size) if chance is None else _part(*photograph.size, chance)
            wide, high = photograph.size
            # JPEGs can be decoded at a half, a quarter or an eighth, and that is most of the work.
            photograph.draft("RGB", (math.ceil(size * wide / box[2]), math.ceil(size * high / box[3])))
            across, down = photograph.size[0] / wide, photograph.size[1] / high
            left, top, width, height = box
            corners = (left * across, top * down, (left + width) * across, (top + height) * down)
            small = photograph.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, corners, reducing_gap=2.0)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
        raise DataError(f"{path} is damaged, or no photograph: {error}") from None
    pixels = np.asarray(small).transpose(2, 0, 1)
    return pixels[:, :, ::-1] if chance is not None and chance[4] < 0.5 else pixels


def _part(wide: int, high: int, chance: Any) -> tuple[float, float, float, float]:
    """Left, top, width and height."""
    area = wide * high * (_LEAST_AREA + (1 - _LEAST_AREA) * float(chance[0]))
    ratio = math.exp((2 * float(chance[1]) - 1) * math.log(_WIDEST))
    width, height = min(wide, math.sqrt(area * ratio)), min(high, math.sqrt(area / ratio))
    return (wide - width) * float(chance[2]), (high - height) * float(chance[3]), width, height


def _middle(wide: int, high: int) -> tuple[float, float, float, float]:
    side = min(wide, high) / _AROUND
    return (wide - side) / 2, (high - side) / 2, side, side
