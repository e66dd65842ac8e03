"""From images as they are stored to images as a network takes them, in 8 bits: crops, mirrors, shifts, enlargements.

What is drawn for an image depends on seed, epoch and image alone, so no number of ranks or of loader processes changes
it. All of these work on whole batches (images, channels, rows, columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np

SHIFT = 0.1  # of the side, in each direction


def draws(count: int, seed: int, epoch: int, each: int) -> Any:
    """``each`` numbers between 0 and 1 for every image of an epoch."""
    return np.random.default_rng([seed, epoch, each]).random((count, each), dtype=np.float32)


def prepare(images: Any, size: int, chance: Any | None) -> Any:
    """Images of ``size``: with ``chance`` (three numbers an image) for training, without for validation.

    Smaller than stored: cropped at random and mirrored, as MXNet's CIFAR-10 example does; validation takes the middle.
    As stored: shifted by a tenth and mirrored, as Keras' does. Larger: enlarged without chance, as the Keras-MXNet
    profile did.
    """
    stored = images.shape[-1]
    if size > stored:
        return enlarge(images, size)
    if size < stored:
        if chance is None:
            middle = (stored - size) // 2
            return images[:, :, middle : middle + size, middle : middle + size]
        return mirror(crop(images, size, chance[:, 0], chance[:, 1]), chance[:, 2])
    return images if chance is None else mirror(shift(images, chance[:, 0], chance[:, 1]), chance[:, 2])


def crop(images: Any, size: int, rows: Any, columns: Any) -> Any:
    """A window of each image; ``rows`` and ``columns`` say where, from 0 to 1."""
    places = images.shape[-1] - size + 1
    tops, lefts = (np.minimum((where * places).astype(np.int64), places - 1) for where in (rows, columns))
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(2, 3))
    return windows[np.arange(len(images)), :, tops, lefts]


def shift(images: Any, rows: Any, columns: Any) -> Any:
    """Moved by whole pixels; what comes in from outside is the edge, repeated."""
    most = int(images.shape[-1] * SHIFT)
    edges = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)), mode="edge")
    return crop(edges, images.shape[-1], rows, columns)


def mirror(images: Any, chance: Any) -> Any:
    """Every other one, left to right."""
    result = np.ascontiguousarray(images)
    flipped = chance < 0.5
    result[flipped] = result[flipped, :, :, ::-1]
    return result


def enlarge(images: Any, size: int) -> Any:
    """Each pixel repeated as often as fits, the rest black around it: 32 pixels become 288 of 299."""
    count, channels, stored, _ = images.shape
    times = size // stored
    inside = slice((size - stored * times) // 2, (size - stored * times) // 2 + stored * times)
    result = np.zeros((count, channels, size, size), images.dtype)
    wide, rows = images.repeat(times, axis=3), result[:, :, inside, inside]
    for number in range(times):
        rows[:, :, number::times] = wide
    return result
