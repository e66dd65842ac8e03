"""Folders of small photographs, laid out as ImageNet is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


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
