"""The arrays that the reference network computes with, and in which arithmetic.

An arithmetic is ``fp64``, or emulates a precision in which trials are timed: in 32-bit arrays, with the operands of
convolutions and matrix products rounded to as many bits as the precision has, and for the 16-bit formats the results of
all layers too. Ranges of exponents are those of 32-bit numbers. Images are (samples, rows, columns, channels) here,
because then the columns of a convolution are copied in long pieces.
"""

from __future__ import annotations

from typing import Any

_MANTISSA_BITS = {"tf32": 10, "bf16": 7, "fp16": 10}
_ROUNDS_RESULTS = ("bf16", "fp16")
_FLOAT32_BITS = 23


class Arrays:
    """numpy's arrays."""

    block_values = 1 << 21  # of the columns of a convolution that are made at a time: 16 MiB in float64

    def __init__(self, arithmetic: str = "fp64") -> None:
        import numpy

        self.arithmetic = arithmetic
        self.item_bytes = 8 if arithmetic == "fp64" else 4
        self.module: Any = numpy
        self._dropped_bits = _FLOAT32_BITS - _MANTISSA_BITS.get(arithmetic, _FLOAT32_BITS)
        self._rounds_results = arithmetic in _ROUNDS_RESULTS
        self.dtype: Any = self._find_dtype(f"float{8 * self.item_bytes}")

    def make_like(self, arithmetic: str) -> Arrays:
        """Return arrays of the same kind in another arithmetic."""
        return Arrays(arithmetic)

    def make_array(self, values: Any) -> Any:
        """Return a copy of a numpy array in this arithmetic."""
        return self.module.array(values, dtype=self.dtype)

    def place_labels(self, values: Any) -> Any:
        return values

    def to_numpy(self, values: Any) -> Any:
        return values

    def zeros(self, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        return self.module.full(shape, fill, dtype=self.dtype)

    def contiguous(self, values: Any) -> Any:
        return self.module.ascontiguousarray(values)

    def relu_in_place(self, values: Any) -> Any:
        return self.module.maximum(values, 0, out=values)

    def sum_rows(self, matrix: Any) -> Any:
        """Return the sums over the first axis, accumulated in float64: frameworks sum in blocks or trees."""
        return matrix.sum(axis=0, dtype=self._find_dtype("float64")).astype(self.dtype, copy=False)

    def cut_windows(
        self, images: Any, kernel: tuple[int, int], stride: tuple[int, int], places: tuple[int, int]
    ) -> Any:
        """Return a matrix with a row for each place of the kernel and the values below the kernel in it, in the order
        rows, columns, channels. The images are contiguous.
        """
        count, height, width, channels = images.shape
        shape = (count, *places, kernel[0], kernel[1] * channels)
        line = width * channels
        steps = (height * line, stride[0] * line, stride[1] * channels, line, 1)
        return self._view_strided(images, shape, steps).reshape(count * places[0] * places[1], -1)

    def _view_strided(self, values: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        strides = tuple(step * values.itemsize for step in steps)
        return self.module.lib.stride_tricks.as_strided(values, shape, strides, writeable=False)

    def round_operand(self, values: Any) -> Any:
        """Return what a convolution or a matrix product reads of these values."""
        return self._round(values) if self._dropped_bits else values

    def round_result(self, values: Any) -> Any:
        """Return what a layer writes."""
        return self._round(values) if self._rounds_results else values

    def _round(self, values: Any) -> Any:
        """Round to the nearest number that has fewer bits, and to the even one of two that are equally near."""
        dropped = self._dropped_bits
        bits = self.contiguous(values).view(self._find_dtype("int32"))
        to_even = (bits >> dropped) & 1
        rounded = (bits + (to_even + ((1 << (dropped - 1)) - 1))) & -(1 << dropped)
        return rounded.view(self.dtype)

    def _find_dtype(self, dtype: str) -> Any:
        return getattr(self.module, dtype)
