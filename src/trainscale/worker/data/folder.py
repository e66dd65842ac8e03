"""Photographs of any size, in ``train/`` and ``val/`` a folder per class. Pillow decodes them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..regular_files import open_regular
from .facts import TRAIN, VALID, DataError

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_LONGEST_SHOWN = 500  # characters of a path in a message
_FOLDERS = {TRAIN: "train", VALID: "val"}
# As since GoogLeNet: a random part with at least 8 % of the area, a little wider or higher than
# the photograph; for validation, 224 of 256 pixels in the centre.
_LEAST_AREA, _WIDEST = 0.08, 4 / 3
_VALIDATION_SCALE = 256 / 224


@dataclass(frozen=True)
class Listing:
    paths: list[str]
    labels: list[int]
    classes: list[str]


def list_photographs(directory: str, split: str) -> Listing:
    """Return the photographs of a split with their classes, by name. Raises DataError."""
    classes = _list_classes(directory, TRAIN)
    top = os.path.join(directory, _FOLDERS[split])
    if split != TRAIN:
        unknown = sorted(set(_list_classes(directory, split)) - set(classes))
        if unknown:
            raise DataError(f"{os.path.join(top, unknown[0])} is a class that train/ does not have")
    paths, labels = [], []
    for number, name in enumerate(classes):
        folder = os.path.join(top, name)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        photographs = [os.path.join(folder, name) for name in names if name.lower().endswith(_ENDINGS)]
        paths += photographs
        labels += [number] * len(photographs)
    if not paths:
        valid = f"files that end in {', '.join(_ENDINGS)}, in a folder a class"
        raise DataError(f"{top} has no photographs; valid: {valid}")
    return Listing(paths, labels, classes)


def _list_classes(directory: str, split: str) -> list[str]:
    top = os.path.join(directory, _FOLDERS[split])
    try:
        with os.scandir(top) as entries:
            classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        shown = top if len(top) <= _LONGEST_SHOWN else f"{top[:_LONGEST_SHOWN]}…"
        raise DataError(f"{shown} cannot be read: {error.strerror}; valid: a folder with train/ and val/") from None
    if not classes:
        raise DataError(f"{top} has no folders; valid: a folder of photographs for each class")
    return classes


def decode_photograph(out: Any, path: str, draws: Any | None) -> None:
    """Write a photograph to ``out`` (3, size, size). Raises DataError.

    With ``draws`` (area, shape, column, row, mirror) a random part of it is taken, else its
    centre. An EXIF orientation is ignored, as torchvision and TensorFlow do.
    """
    import numpy as np

    image, size = _import_pillow(), out.shape[-1]
    with _name_file_in_errors(path), open_regular(path) as file, image.open(file) as photograph:
        wide, high = photograph.size
        box = choose_box(wide, high, draws)
        # A JPEG can be decoded at a half, a quarter or an eighth of its size.
        needed = math.ceil(size * wide / box[2]), math.ceil(size * high / box[3])
        drafted = photograph.draft("RGB", needed)
        scale = drafted[1][2] / wide if drafted else 1.0  # of the whole picture
        left, top, width, height = (length * scale for length in box)
        corners = (left, top, left + width, top + height)
        if photograph.mode.startswith("I;16"):  # convert() would clip to white
            photograph = photograph.point(lambda value: value / 256).convert("L")
        if photograph.mode == "P" and "transparency" in photograph.info:
            photograph = photograph.convert("RGBA")
        if photograph.mode != "RGB":
            photograph = photograph.convert("RGB")
        small = photograph.resize((size, size), image.Resampling.BILINEAR, corners, reducing_gap=2.0)
    mirrored = draws is not None and draws[4] < 0.5
    for colour, band in zip(out, small.split()):
        pixels = np.frombuffer(band.tobytes(), np.uint8).reshape(size, size)
        colour[...] = pixels[:, ::-1] if mirrored else pixels


def choose_box(wide: int, high: int, draws: Any | None) -> tuple[float, float, float, float]:
    """Return left, top, width and height of the part of a photograph to take."""
    if draws is None:
        side = min(wide, high) / _VALIDATION_SCALE
        return (wide - side) / 2, (high - side) / 2, side, side
    area = wide * high * (_LEAST_AREA + (1 - _LEAST_AREA) * float(draws[0]))
    ratio = math.exp((2 * float(draws[1]) - 1) * math.log(_WIDEST))
    width, height = min(wide, math.sqrt(area * ratio)), min(high, math.sqrt(area / ratio))
    return (wide - width) * float(draws[2]), (high - height) * float(draws[3]), width, height


def inspect_photograph(path: str) -> tuple[int, int, int]:
    image = _import_pillow()
    with _name_file_in_errors(path), open_regular(path) as file, image.open(file) as photograph:
        size = photograph.size
        photograph.draft("RGB", (1, 1))  # decode it small, which still reads every byte
        photograph.load()
    return (*size, os.path.getsize(path))


def _import_pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("photographs need Pillow, which this Python does not have: pip install pillow") from None
    return Image


@contextmanager
def _name_file_in_errors(path: str) -> Iterator[None]:
    """Turn every error about a photograph into a DataError with its name."""
    try:
        yield
    except MemoryError:
        raise
    except OSError as error:
        if error.strerror is None:  # of Pillow, about the content
            raise DataError(f"{path} is damaged, or no photograph: {error}") from None
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # decoders raise anything on bytes that they do not know
        raise DataError(f"{path} is damaged, or no photograph: {error}") from None
