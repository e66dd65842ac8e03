"""Networks as a user of Keras writes them, and networks that go wrong. Imported by the ranks, never by the tests."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers


def plain(classes: int, input_shape: tuple[int, ...]) -> keras.Model:
    """With batch norm, dropout, and a model inside a model."""
    channels = 1 if keras.config.image_data_format() == "channels_first" else -1
    images = keras.Input(input_shape)
    stem = keras.Sequential([keras.Input(input_shape), layers.Conv2D(8, 3, 2), layers.BatchNormalization(channels)])
    x = layers.Dropout(0.5)(layers.GlobalAveragePooling2D()(stem(images)))
    return keras.Model(images, layers.Dense(classes)(x))


class OfAClass(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.dense = layers.Flatten(), layers.Dense(10, use_bias=False)

    def call(self, images: Any) -> Any:
        return self.dense(self.flatten(images))


class _Raises(layers.Layer):
    def call(self, images: Any, training: bool = False) -> Any:
        if training and _rank() == 1:
            raise ValueError("the network of rank 1 does not like this image")
        return images


def raises(classes: int, input_shape: tuple[int, ...]) -> keras.Model:
    images = keras.Input(input_shape)
    return keras.Model(images, plain(classes, input_shape)(_Raises()(images)))


def _rank() -> int:
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.process_index()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy().cluster_resolver.task_id
    import torch

    return torch.distributed.get_rank()


def not_a_model() -> str:
    return "surprise"


def too_large() -> keras.Model:
    return keras.Sequential([keras.Input((64, 64, 3)), layers.Flatten(), layers.Dense(10)])


of_a_class = OfAClass
