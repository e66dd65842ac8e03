"""The layer kinds of a graph as TensorFlow operations, with the kernels that are fast on the device.

TensorFlow pads differently. Its "SAME" is uneven under a stride, so it is used only where it equals the graph's
padding. On a CPU, explicit padding does not use oneDNN's kernels: a max pool becomes eight times slower, a
convolution's backward pass a third, and channels-first has no backward pass at all. So there the image is padded first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import Config
from ...models import find_samples
from ...models.graph import BATCH_NORM_MOMENTUM, Layer
from ..windows import count_inside


@dataclass(frozen=True)
class Style:
    """How a network computes: its layout, the type of its activations, and what its device prefers."""

    is_channels_first: bool
    dtype: Any  # of activations
    weight_dtype: Any  # of parameters, statistics and logits
    is_on_gpu: bool
    has_dropout: bool
    is_training: bool = True  # if not, batch norm uses its running statistics, and nothing is dropped
    dropping: Any = 1.0  # 1, or 0 while dropout is switched off; a number or a scalar on the device

    @property
    def data_format(self) -> str:
        return "NCHW" if self.is_channels_first else "NHWC"

    def order_axes(self, height: Any, width: Any, rest: Any) -> list[Any]:
        """Return one entry for each axis of a batch of images; ``rest`` is for the batch and the channels."""
        return [rest, rest, height, width] if self.is_channels_first else [rest, height, width, rest]

    def make_batch_shape(self, count: int, config: Config) -> tuple[int, ...]:
        """Return the shape of so many images in this layout."""
        channels, *sides = find_samples(config.model).shape(config)
        return (count, channels, *sides) if self.is_channels_first else (count, *sides, channels)


def make_style(config: Config, gpu: bool, dropout: bool) -> Style:
    fp64 = config.precision == "fp64"
    weight_dtype = tf.float64 if fp64 else tf.float32
    return Style(
        # TensorFlow's float64 kernels for the CPU have channels-last only. A parity check uses them for any layout.
        is_channels_first=config.layout == "nchw" and (gpu or not fp64),
        dtype=tf.bfloat16 if config.precision == "bf16" else weight_dtype,
        weight_dtype=weight_dtype.as_numpy_dtype,
        is_on_gpu=gpu,
        has_dropout=dropout,
    )


def _is_same_padding(layer: Layer) -> bool:
    """Whether "SAME" pads as the graph does."""
    sizes, pads = layer.options["kernel"], layer.options["padding"]
    return layer.options["stride"] == (1, 1) and all(2 * pad == size - 1 for size, pad in zip(sizes, pads))


def _make_pads(layer: Layer, style: Style) -> list[Any]:
    height, width = ([pad, pad] for pad in layer.options["padding"])
    return style.order_axes(height, width, [0, 0])


def _conv(images: tf.Tensor, weight: tf.Tensor, layer: Layer, style: Style) -> tf.Tensor:
    padding: Any = "VALID"
    if any(layer.options["padding"]):
        if _is_same_padding(layer):
            padding = "SAME"
        elif style.is_on_gpu:
            padding = _make_pads(layer, style)
        else:
            images = tf.pad(images, _make_pads(layer, style))
    return tf.nn.conv2d(images, weight, layer.options["stride"], padding, data_format=style.data_format)


def _dense(features: tf.Tensor, weight: tf.Tensor, layer: Layer, style: Style) -> tf.Tensor:
    return tf.matmul(features, weight)


def add_bias(value: tf.Tensor, bias: Any, style: Style) -> tf.Tensor:
    data_format = style.data_format if value.shape.rank == 4 else None
    return tf.nn.bias_add(value, tf.cast(bias, style.dtype), data_format=data_format)


def batch_norm(
    images: tf.Tensor, weights: tuple[Any, Any], running: tuple[Any, Any], eps: float, style: Style
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the normalized images and the new running mean and variance, which are meaningless outside of training.

    ``weights`` are scale and shift, ``running`` mean and variance. Statistics are float32 whatever the images are.
    """
    if images.dtype == tf.float64:
        return _batch_norm_by_moments(images, weights, running, eps, style)
    (scale, shift), (mean, variance) = weights, running
    # The function tf.compat.v1.nn.fused_batch_norm would raise eps to 1.001e-5.
    result = tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=scale,
        offset=shift,
        mean=mean,
        variance=variance,
        epsilon=eps,
        exponential_avg_factor=BATCH_NORM_MOMENTUM,
        data_format=style.data_format,
        is_training=style.is_training,
    )
    return result.y, result.batch_mean, result.batch_variance


def _batch_norm_by_moments(
    images: tf.Tensor, weights: tuple[Any, Any], running: tuple[Any, Any], eps: float, style: Style
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Compute in float64, which the fused operation does not have."""
    axes = [0, 2, 3] if style.is_channels_first else [0, 1, 2]
    channels = style.order_axes(1, 1, 1)
    channels[1 if style.is_channels_first else 3] = -1
    scale, shift = (tf.reshape(value, channels) for value in weights)
    mean, variance = running
    if not style.is_training:
        reshaped = (tf.reshape(value, channels) for value in running)
        return tf.nn.batch_normalization(images, *reshaped, shift, scale, eps), mean, variance
    batch_mean, batch_variance = tf.nn.moments(images, axes, keepdims=True)
    normalized = tf.nn.batch_normalization(images, batch_mean, batch_variance, shift, scale, eps)
    count = tf.cast(tf.size(images) / tf.size(batch_mean), images.dtype)
    unbiased = tf.reshape(batch_variance, [-1]) * (count / (count - 1))
    return (
        normalized,
        mean + BATCH_NORM_MOMENTUM * (tf.reshape(batch_mean, [-1]) - mean),
        variance + BATCH_NORM_MOMENTUM * (unbiased - variance),
    )


def flatten(images: tf.Tensor, style: Style, weights_are_permuted: bool) -> tf.Tensor:
    """Flatten in canonical order, channel slowest, unless the weights that follow are permuted instead."""
    if not (style.is_channels_first or weights_are_permuted):
        images = tf.transpose(images, [0, 3, 1, 2])
    return tf.reshape(images, [images.shape[0], -1])


def _max_pool(inputs: list[tf.Tensor], layer: Layer, style: Style) -> tf.Tensor:
    images, padding = inputs[0], "VALID"
    if any(layer.options["padding"]):
        if _is_same_padding(layer):
            padding = "SAME"
        else:
            images = tf.pad(images, _make_pads(layer, style), constant_values=images.dtype.min)
    kernel, stride = layer.options["kernel"], layer.options["stride"]
    return tf.nn.max_pool2d(images, kernel, stride, padding, data_format=style.data_format)


def _avg_pool(inputs: list[tf.Tensor], layer: Layer, style: Style) -> tf.Tensor:
    images = inputs[0]
    kernel, stride = layer.options["kernel"], layer.options["stride"]
    padded = any(layer.options["padding"])
    if padded and not layer.options["count_padding"] and _is_same_padding(layer):
        # TensorFlow's own padding never counts in the divisor.
        return tf.nn.avg_pool2d(images, kernel, stride, "SAME", data_format=style.data_format)
    if padded:
        images = tf.pad(images, _make_pads(layer, style))
    pooled = tf.nn.avg_pool2d(images, kernel, stride, "VALID", data_format=style.data_format)
    if padded and not layer.options["count_padding"]:
        pooled = pooled * tf.constant(_compute_padding_factors(inputs[0], layer, style), pooled.dtype)
    return pooled


def _compute_padding_factors(images: tf.Tensor, layer: Layer, style: Style) -> np.ndarray:
    """Return, for each place of the output, the window's size over how many of its places are not padding."""
    sides = images.shape[2:4] if style.is_channels_first else images.shape[1:3]
    windows = zip(sides, *(layer.options[name] for name in ("kernel", "stride", "padding")))
    factors = [kernel / count_inside(size, kernel, stride, padding) for size, kernel, stride, padding in windows]
    return np.outer(*factors).reshape(style.order_axes(len(factors[0]), len(factors[1]), 1))


def _dropout(inputs: list[tf.Tensor], layer: Layer, style: Style) -> tf.Tensor:
    values = inputs[0]
    if not (style.has_dropout and style.is_training):
        return values
    # At rate 0 TensorFlow still draws, keeps everything and divides by 1.
    return tf.nn.dropout(values, tf.cast(layer.options["rate"] * style.dropping, values.dtype))


WEIGHTED = {"conv": _conv, "dense": _dense}
PLAIN = {
    "relu": lambda inputs, layer, style: tf.nn.relu(inputs[0]),
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": lambda inputs, layer, style: tf.reduce_mean(
        inputs[0], [2, 3] if style.is_channels_first else [1, 2]
    ),
    "dropout": _dropout,
    "concat": lambda inputs, layer, style: tf.concat(inputs, 1 if style.is_channels_first else -1),
    "add": lambda inputs, layer, style: tf.add(*inputs),
}
