"""From images as they are stored to images as a network takes them, in 8 bits: crops, mirrors, shifts, enlargements.

What is drawn for an image depends on seed, epoch and image alone, so no number of ranks or of loader processes changes
it. Images are written one by one straight to where they are wanted: that is faster than whole batches at a time, which
do not fit into a core's cache.
"""

from __future__ import annotations

from typing import Any

SHIFT = 0.1  # of the side, in each direction


def draws(count: int, seed: int, epoch: int, each: int) -> Any:
    """``each`` numbers from 0 to below 1 for every image of an epoch."""
    import numpy as np

    return np.random.default_rng([seed, epoch, each]).random((count, each), dtype=np.float32)


def fill(places: Any, stored: Any, chosen: Any, chance: Any | None) -> None:
    """Writes images ``chosen`` of ``stored`` to ``places`` (images, channels, size, size): with ``chance`` (three
    numbers an image: row, column, mirror) for training, without for validation.

    Smaller than stored: cropped at random and mirrored, as MXNet's CIFAR-10 example does; validation takes the middle.
    As stored: shifted by up to a tenth and mirrored, as Keras' does. Larger: enlarged without chance, as the
    Keras-MXNet profile did.
    """
    size, side = places.shape[-1], stored.shape[-1]
    if size > side:
        enlarge(places, stored, chosen)
    elif chance is None:
        middle = (side - size) // 2
        places[...] = stored[chosen, :, middle : middle + size, middle : middle + size]
    elif size < side:
        crop(places, stored, chosen, chance)
    else:
        shift(places, stored, chosen, chance)


def crop(places: Any, stored: Any, chosen: Any, chance: Any) -> None:
    """A window of each image, every other one mirrored."""
    import numpy as np

    size = places.shape[-1]
    ways = stored.shape[-1] - size + 1
    tops, lefts = np.minimum((chance[:, :2] * ways).astype(np.int64), ways - 1).T.tolist()
    mirrored = (chance[:, 2] < 0.5).tolist()
    for place, number, top, left, mirror in zip(places, np.asarray(chosen).tolist(), tops, lefts, mirrored):
        window = stored[number, :, top : top + size, left : left + size]
        place[...] = window[:, :, ::-1] if mirror else window


def shift(places: Any, stored: Any, chosen: Any, chance: Any) -> None:
    """Moved by whole pixels, every other one mirrored; what comes in from outside is the edge, repeated."""
    import numpy as np

    count, channels, side = len(chosen), stored.shape[1], stored.shape[-1]
    most = int(side * SHIFT)
    wide = np.empty((count, channels, side + 2 * most, side + 2 * most), stored.dtype)
    wide[:, :, most : most + side, most : most + side] = stored[chosen]
    wide[:, :, :most] = wide[:, :, most : most + 1]
    wide[:, :, most + side :] = wide[:, :, most + side - 1 : most + side]
    wide[:, :, :, :most] = wide[:, :, :, most : most + 1]
    wide[:, :, :, most + side :] = wide[:, :, :, most + side - 1 : most + side]
    crop(places, wide, np.arange(count), chance)


def enlarge(places: Any, stored: Any, chosen: Any) -> None:
    """Each pixel repeated as often as fits, the rest black around it: 32 pixels become 288 of 299."""
    import numpy as np

    size, channels, side = places.shape[-1], stored.shape[1], stored.shape[-1]
    times = size // side
    first, length = (size - side * times) // 2, side * times
    inside = slice(first, first + length)
    for border in (slice(0, first), slice(first + length, size)):
        places[:, :, border] = 0
        places[:, :, :, border] = 0
    for place, number in zip(places, np.asarray(chosen).tolist()):
        # Rows in groups of equal ones: a view, because the axis of rows is only split.
        rows = place[:, inside, inside].reshape(channels, side, times, length)
        rows[...] = stored[number].repeat(times, axis=2)[:, :, None]
