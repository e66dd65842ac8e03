"""Sketches: 64 numbers that represent a tensor, or its change, however large it is.

A tensor is written as a matrix X, and its sketch is R·X·C / 8, where the 8 rows of R and the
8 columns of C are random signs. So a sketch is linear, and on average over signs as long as the
tensor. Values that swapped positions change it, and so do those that were left out. The signs of
two tensors are independent: the sum of their sketches stands for both.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..inspection.usage import list_usable_cores

if TYPE_CHECKING:
    import numpy

SIZE = 64
_SIDE = 8  # rows of R, and columns of C
_COLUMNS = 4096
# A block stays in a core's cache, and OpenBLAS computes so small a product in this thread.
_CHUNK_ROWS = 8
_MOST_THREADS = 4  # more hardly help: memory is shared


def sketch(name: str, values: Any) -> numpy.ndarray:
    """Return the 64 numbers. The signs depend on the tensor's name and size only.

    Values become float64 block by block, so a large tensor needs no second copy.
    """
    import numpy as np

    flat = np.ascontiguousarray(values).ravel()
    seed = [zlib.crc32(name.encode()), flat.size]
    result: numpy.ndarray = np.zeros(SIZE)
    if flat.size <= SIZE:  # each with a random sign, because those of other tensors are added
        result[: flat.size] = flat.astype(np.float64) * draw_signs(seed, flat.size)
        return result
    columns = min(_COLUMNS, int(np.ceil(np.sqrt(flat.size))))
    rows = -(-flat.size // columns)
    signs = draw_signs(seed, _SIDE * (rows + columns))
    left, right = np.split(signs, [_SIDE * rows])
    left, right = left.reshape(_SIDE, rows), right.reshape(columns, _SIDE)
    products: numpy.ndarray = np.empty((rows, _SIDE))
    block: numpy.ndarray = np.empty(_CHUNK_ROWS * columns)
    for first in range(0, rows, _CHUNK_ROWS):
        part = flat[first * columns : (first + _CHUNK_ROWS) * columns]
        block[: part.size] = part
        block[part.size :] = 0  # the last row may be incomplete
        used = min(_CHUNK_ROWS, rows - first)
        products[first : first + used] = block.reshape(_CHUNK_ROWS, columns)[:used] @ right
    result[:] = (left @ products).ravel() / _SIDE
    return result


def sketch_weights(weights: Mapping[str, Any], names: Sequence[str]) -> numpy.ndarray:
    """Return a row for each of the named tensors."""
    import numpy as np

    with ThreadPoolExecutor(min(_MOST_THREADS, len(list_usable_cores()))) as pool:
        rows = pool.map(lambda name: sketch(name, weights[name]), names)
        sketches: numpy.ndarray = np.stack([*rows])
    return sketches


def draw_signs(seed: int | Sequence[int], count: int) -> numpy.ndarray:
    """Return random 1.0 and -1.0: numpy guarantees that the raw bits are the same in every version."""
    import numpy as np

    generator = np.random.SFC64(np.random.SeedSequence(seed))
    bits = np.unpackbits(generator.random_raw(-(-count // 64)).astype("<u8").view(np.uint8))[:count]
    signs: numpy.ndarray = 1 - 2 * bits.astype(np.float64)
    return signs
