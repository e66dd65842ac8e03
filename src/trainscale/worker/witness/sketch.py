"""Sketches: 64 numbers that represent the change of a tensor, however large it is.

A change is written as a matrix X, and its sketch is R·X·C / 8, where the 8 rows of R and the 8 columns of C are random
signs. So a sketch is linear: the sketches of the parts of a sum add up to the sketch of the sum. On average over signs,
the square of its length is that of the change, and the sketches of two changes differ by as much as the changes do. Two
values that swapped positions change it, and so does a row or a column that was left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

SIZE = 64
_SIDE = 8  # rows of R, and columns of C
_COLUMNS = 4096
# A block stays in a core's cache, and OpenBLAS computes so small a product in this thread: its other threads may wait
# for cores that other ranks have.
_CHUNK_ROWS = 8


def sketch(name: str, change: Any) -> numpy.ndarray:
    """Return the 64 numbers, in float64. The signs depend on the tensor's name and size only."""
    return sketch_change(name, None, change)


def sketch_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
    """Return the sketch of the change of every tensor, in the order of ``after``."""
    return {name: sketch_change(name, before[name], values) for name, values in after.items()}


def total(sketches: Mapping[str, numpy.ndarray]) -> numpy.ndarray:
    """Return the sketch of all tensors together. Their signs are independent, so they do not cancel out."""
    import numpy as np

    result: numpy.ndarray = np.sum(list(sketches.values()), axis=0)
    return result


def sketch_change(name: str, before: Any, after: Any) -> numpy.ndarray:
    """Return the sketch of ``after - before``; ``before`` is None for zeros. Float64 stays; all else becomes float32.

    The difference is made block by block, so a large tensor needs no memory of its size.
    """
    import numpy as np

    after = np.asarray(after)
    kind = np.float64 if after.dtype == np.float64 else np.float32
    flat = np.ascontiguousarray(after, dtype=kind).ravel()
    start = None if before is None else np.ascontiguousarray(before, dtype=kind).ravel()
    if start is not None and start.size != flat.size:
        raise ValueError(f"{name} has {flat.size:,} values and had {start.size:,}")
    if flat.size <= SIZE:
        return _signed(name, flat.astype(np.float64), start)
    columns = min(_COLUMNS, int(np.ceil(np.sqrt(flat.size))))
    rows = -(-flat.size // columns)
    signs = _signs(name, flat.size, _SIDE * (rows + columns), kind)
    left, right = signs[: _SIDE * rows].reshape(_SIDE, rows), signs[_SIDE * rows :].reshape(columns, _SIDE)
    products: numpy.ndarray = np.empty((rows, _SIDE))
    for first in range(0, rows, _CHUNK_ROWS):
        block = _block(flat, start, first * columns, (min(_CHUNK_ROWS, rows - first), columns))
        products[first : first + len(block)] = block @ right
    result: numpy.ndarray = (left.astype(np.float64) @ products).ravel() / _SIDE
    return result


def _signed(name: str, values: numpy.ndarray, start: numpy.ndarray | None) -> numpy.ndarray:
    """A small tensor keeps its values, each with a random sign, because those of other tensors are added to them."""
    import numpy as np

    result: numpy.ndarray = np.zeros(SIZE)
    change = values if start is None else values - start
    result[: values.size] = change * _signs(name, values.size, values.size, np.float64)
    return result


def _block(flat: numpy.ndarray, start: numpy.ndarray | None, first: int, shape: tuple[int, int]) -> numpy.ndarray:
    """Return some rows of the matrix. The last row may be incomplete: then zeros follow."""
    import numpy as np

    size = shape[0] * shape[1]
    part = flat[first : first + size]
    if start is not None:
        part = part - start[first : first + size]
    if part.size < size:
        part = np.concatenate([part, np.zeros(size - part.size, part.dtype)])
    return part.reshape(shape)


def _signs(name: str, size: int, count: int, kind: Any) -> numpy.ndarray:
    """Return random signs. numpy guarantees that the raw bits of a generator are the same in every version."""
    import numpy as np

    generator = np.random.SFC64(np.random.SeedSequence([zlib.crc32(name.encode()), size]))
    bits = np.unpackbits(generator.random_raw(-(-count // 64)).astype("<u8").view(np.uint8))[:count]
    signs: numpy.ndarray = 1 - 2 * bits.astype(kind)
    return signs
