"""Networks as a user of TensorFlow writes them, and one that fails. Imported by the ranks, never by the tests."""

from __future__ import annotations

import tensorflow as tf


class Plain(tf.Module):
    """Channels-last, with a batch norm whose running mean is its own affair."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.normal((3, 3, 3, 8), stddev=0.2))
        self.scale = tf.Variable(tf.ones(8))
        self.shift = tf.Variable(tf.zeros(8))
        self.weight = tf.Variable(tf.random.normal((8, classes), stddev=0.1))

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        x = tf.nn.conv2d(images, self.kernel, 2, "SAME")
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        x = tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, self.shift, self.scale, 1e-5))
        return tf.reduce_mean(x, [1, 2]) @ self.weight


class Raises(Plain):
    """Trains for a few steps; then the second worker's does not."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.steps = 0

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        resolver = tf.distribute.get_strategy().cluster_resolver  # of allreduce; with servers, operations have devices
        if (resolver is not None and resolver.task_id == 1) or "/task:1" in tf.zeros(()).device:
            (checked,) = tf.py_function(self._count_and_raise, [images], [tf.float32])
            checked.set_shape(images.shape)
            images = checked
        return super().__call__(images)

    def _count_and_raise(self, images: tf.Tensor) -> tf.Tensor:
        self.steps += 1
        if self.steps == 4:
            raise ValueError("the network of rank 1 does not like this image")
        return images


def plain(classes: int) -> Plain:
    return Plain(classes)


def raises(classes: int) -> Raises:
    return Raises(classes)


def not_a_network() -> str:
    return "surprise"
