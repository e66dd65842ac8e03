"""Turns stored images into training images, in 8 bits: crops, mirrors, shifts and enlargements.

The random numbers of an image depend on seed, epoch and image alone, so the number of ranks and loader processes does
not change them. Images are written one by one straight into the batch. That is faster than whole arrays at a time,
which do not fit into a core's cache.
"""

from __future__ import annotations

from typing import Any

SHIFT_SHARE = 0.1  # of the side, in each direction


def draw_numbers(count: int, seed: int, epoch: int, each: int) -> Any:
    """Return ``each`` numbers in [0, 1) for every image of an epoch."""
    import numpy as np

    return np.random.default_rng([seed, epoch, each]).random((count, each), dtype=np.float32)


def write_images(out: Any, stored: Any, chosen: Any, draws: Any | None) -> None:
    """Write the ``chosen`` images of ``stored`` to ``out`` (images, channels, size, size).

    ``draws`` (three numbers per image: row, column, mirror) is for training; without it the images are for validation.
    Where ``out`` is smaller than the stored images, they are cropped at random and mirrored, as MXNet's CIFAR-10
    example does; validation takes the centre. Where the sizes are equal, images are shifted by up to a tenth and
    mirrored, as Keras' example does. Where ``out`` is larger, images are enlarged without randomness, as the
    Keras-MXNet profile did.
    """
    size, side = out.shape[-1], stored.shape[-1]
    if size > side:
        enlarge(out, stored, chosen)
    elif draws is None:
        first = (side - size) // 2
        out[...] = stored[chosen, :, first : first + size, first : first + size]
    elif size < side:
        crop(out, stored, chosen, draws)
    else:
        shift(out, stored, chosen, draws)


def crop(out: Any, stored: Any, chosen: Any, draws: Any) -> None:
    """Write a random window of each image, mirrored with probability one half."""
    import numpy as np

    size = out.shape[-1]
    offsets = stored.shape[-1] - size + 1
    tops, lefts = np.minimum((draws[:, :2] * offsets).astype(np.int64), offsets - 1).T.tolist()
    mirrored = (draws[:, 2] < 0.5).tolist()
    for target, index, top, left, mirror in zip(out, np.asarray(chosen).tolist(), tops, lefts, mirrored):
        window = stored[index, :, top : top + size, left : left + size]
        target[...] = window[:, :, ::-1] if mirror else window


def shift(out: Any, stored: Any, chosen: Any, draws: Any) -> None:
    """Move each image by whole pixels, repeating its edge, and mirror it with probability one half."""
    import numpy as np

    count, channels, side = len(chosen), stored.shape[1], stored.shape[-1]
    margin = int(side * SHIFT_SHARE)
    padded = np.empty((count, channels, side + 2 * margin, side + 2 * margin), stored.dtype)
    padded[:, :, margin : margin + side, margin : margin + side] = stored[chosen]
    padded[:, :, :margin] = padded[:, :, margin : margin + 1]
    padded[:, :, margin + side :] = padded[:, :, margin + side - 1 : margin + side]
    padded[:, :, :, :margin] = padded[:, :, :, margin : margin + 1]
    padded[:, :, :, margin + side :] = padded[:, :, :, margin + side - 1 : margin + side]
    crop(out, padded, np.arange(count), draws)


def enlarge(out: Any, stored: Any, chosen: Any) -> None:
    """Repeat each pixel as often as fits and leave the border black: 32 pixels become 288 of 299."""
    import numpy as np

    size, channels, side = out.shape[-1], stored.shape[1], stored.shape[-1]
    times = size // side
    first, length = (size - side * times) // 2, side * times
    inside = slice(first, first + length)
    for border in (slice(0, first), slice(first + length, size)):
        out[:, :, border] = 0
        out[:, :, :, border] = 0
    for target, index in zip(out, np.asarray(chosen).tolist()):
        # Rows in groups of equal ones. This is a view, because only the axis of rows is split.
        rows = target[:, inside, inside].reshape(channels, side, times, length)
        rows[...] = stored[index].repeat(times, axis=2)[:, :, None]
