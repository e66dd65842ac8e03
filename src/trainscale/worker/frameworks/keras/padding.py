"""Padding that Keras' own layers do not offer: the same on both sides, never the maximum, not counted in an average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

from ..windows import count_inside


def is_same(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether padding="same", the least that gives ceil(size / stride) places, is this padding on both sides."""
    return all(
        max((-(-length // step) - 1) * step + window - length, 0) == 2 * pad
        for length, window, step, pad in zip(size, kernel, stride, padding)
    )


class PadForMaximum(layers.Layer):
    """Pads with minus infinity."""

    def __init__(self, padding: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self._widths = _make_widths(padding)

    def call(self, images: Any) -> Any:
        return keras.ops.pad(images, self._widths, constant_values=-float("inf"))


class AverageWithoutPadding(layers.Layer):
    """Average pooling whose padding does not count in the divisor."""

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        size: Sequence[int],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._window = tuple(kernel), tuple(stride)
        self._widths = _make_widths(padding)
        sides = [count_inside(*axis) for axis in zip(size, kernel, stride, padding)]
        counts = sides[0][:, None] * sides[1][None, :]
        factors = kernel[0] * kernel[1] / counts
        channels_first = keras.config.image_data_format() == "channels_first"
        self._factors = factors[None, None] if channels_first else factors[None, :, :, None]

    def call(self, images: Any) -> Any:
        averages = keras.ops.average_pool(keras.ops.pad(images, self._widths), *self._window)
        return averages * keras.ops.cast(self._factors, averages.dtype)


def _make_widths(padding: Sequence[int]) -> list[tuple[int, int]]:
    of_image = [(pad, pad) for pad in padding]
    if keras.config.image_data_format() == "channels_first":
        return [(0, 0), (0, 0), *of_image]
    return [(0, 0), *of_image, (0, 0)]
