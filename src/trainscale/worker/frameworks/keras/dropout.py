"""Dropout that can be switched off without another program: a variable on the device decides, not Python."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops


class SwitchableDropout(layers.Layer):
    """Keras' own dropout, applied to ones. Values are multiplied by the result, or by 1 while it is switched off."""

    def __init__(self, rate: float, **options: Any) -> None:
        super().__init__(**options)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator()
        self.active = self.add_weight(shape=(), initializer="ones", trainable=False, name="active")

    def call(self, values: Any, training: bool = False) -> Any:
        if not training:
            return values
        active = ops.cast(self.active, values.dtype)
        factors = keras.random.dropout(ops.ones_like(values), self.rate, seed=self.seed_generator)
        return values * (factors * active + (1 - active))

    def compute_output_shape(self, shape: Any) -> Any:
        return shape
