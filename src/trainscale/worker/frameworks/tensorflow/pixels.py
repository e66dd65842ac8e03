"""From 8-bit pixels to the numbers that a network takes, on the device where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def numbers(normal: Any, channels_first: bool, dtype: Any) -> Any:
    """A function of pixels (images, channels, rows, columns), which it gives back normalised and in the layout."""
    factors, offsets = (np.array(values, dtype)[:, None, None] for values in (normal.factors, normal.offsets))

    @tf.function(autograph=False)
    def numbers_of(pixels: tf.Tensor) -> tf.Tensor:
        images = tf.cast(pixels, dtype) * factors + offsets
        return images if channels_first else tf.transpose(images, [0, 2, 3, 1])

    return numbers_of
