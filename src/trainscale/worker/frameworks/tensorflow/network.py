"""Networks as TensorFlow operations: from the graph, or from a user's own function.

A network is called with images, its parameters and the running statistics of its batch norms. It
returns the logits of its heads and the new statistics. The adapters decide where parameters are:
in a variable of this process, in a mirrored one, or in a copy of what a server holds.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ...type_aliases import NamedArrays
from ..base import LOSS_WEIGHTS, call_user_function, count_inside, find_graph, list_heads, transpose, transpose_back


@dataclass(frozen=True)
class Style:
    """How a network computes: its layout, the type of its activations, and what its device prefers."""

    is_channels_first: bool
    dtype: Any  # of activations
    weight_dtype: Any  # of parameters, statistics and logits
    is_on_gpu: bool
    has_dropout: bool
    is_training: bool = True  # if not, batch norm is by its running statistics, without dropout
    dropping: Any = 1.0  # 1, or 0 while dropout is switched off

    @property
    def data_format(self) -> str:
        return "NCHW" if self.is_channels_first else "NHWC"

    def order_axes(self, height: Any, width: Any, channels: Any, batch: Any) -> list[Any]:
        """Return one entry for each axis of a batch of images."""
        return [batch, channels, height, width] if self.is_channels_first else [batch, height, width, channels]

    def make_batch_shape(self, count: int, config: Config) -> tuple[int, ...]:
        channels, height, width = models.find_samples(config.model).shape(config)
        return tuple(self.order_axes(height, width, channels, count))


def make_style(config: Config, gpu: bool, dropout: bool) -> Style:
    fp64 = config.precision == "fp64"
    weight_dtype = tf.float64 if fp64 else tf.float32
    return Style(
        # On a CPU, TensorFlow's float64 kernels have channels-last only.
        is_channels_first=config.layout == "nchw" and (gpu or not fp64),
        dtype=tf.bfloat16 if config.precision == "bf16" else weight_dtype,
        weight_dtype=weight_dtype.as_numpy_dtype,
        is_on_gpu=gpu,
        has_dropout=dropout,
    )


class GraphNetwork:
    """The graph as tf.nn operations. Its parameters are in TensorFlow's layout."""

    def __init__(self, graph: Graph, style: Style, seed: int) -> None:
        self.graph = graph
        self._seed = seed
        self.loss_weights = tuple(head.loss_weight for head in graph.heads)
        self._style = style

    def make_initial_parameters(self) -> NamedArrays:
        return self.to_native(initial_weights(self.graph, self._seed))

    def make_variables(self) -> dict[str, tf.Variable]:
        return {name: tf.Variable(values) for name, values in self.make_initial_parameters().items()}

    def make_initial_statistics(self) -> NamedArrays:
        statistics, dtype = {}, self._style.weight_dtype
        for layer in self.graph.layers:
            if layer.kind == "batch_norm":
                statistics[f"{layer.name}.mean"] = np.zeros(layer.shape[0], dtype)
                statistics[f"{layer.name}.variance"] = np.ones(layer.shape[0], dtype)
        return statistics

    def to_native(self, weights: Mapping[str, Any]) -> NamedArrays:
        dtype = self._style.weight_dtype
        return {name: transpose(values).astype(dtype) for name, values in weights.items()}

    def to_canonical(self, values: Any) -> Any:
        # A copy, because a small one could share memory with its variable.
        return np.array(transpose_back(values), order="C")

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True, dropping: Any = 1.0
    ) -> tuple[list[tf.Tensor], dict]:
        style = dataclasses.replace(self._style, is_training=training, dropping=dropping)
        values, new_statistics = {}, {}
        for layer in self.graph.layers:
            inputs = [values[name] for name in layer.inputs] or [tf.cast(images, style.dtype)]
            own = {role: parameters.get(f"{layer.name}.{role}") for role in ("weight", "bias", "scale", "shift")}
            if layer.kind == "batch_norm":
                names = f"{layer.name}.mean", f"{layer.name}.variance"
                value, *after = _batch_norm(inputs[0], own, [statistics[name] for name in names], layer, style)
                new_statistics.update(zip(names, after))
            else:
                value = _apply(layer, inputs, own, style)
            values[layer.name] = value
        return [tf.cast(values[head.layer], style.weight_dtype) for head in self.graph.heads], new_statistics


def _apply(layer: Layer, inputs: list[tf.Tensor], own: dict, style: Style) -> tf.Tensor:
    x, kind = inputs[0], layer.kind
    if kind == "input":
        return x
    if kind == "relu":
        return tf.nn.relu(x)
    if kind == "add":
        return tf.add(x, inputs[1])
    if kind == "concat":
        return tf.concat(inputs, 1 if style.is_channels_first else -1)
    if kind == "dropout":
        return dropout(layer, x, style)
    if kind == "global_avg_pool":
        return tf.reduce_mean(x, [2, 3] if style.is_channels_first else [1, 2])
    if kind == "flatten":  # in canonical order, in which the channel is slowest
        return tf.reshape(x if style.is_channels_first else tf.transpose(x, [0, 3, 1, 2]), [x.shape[0], -1])
    if kind == "dense":
        result = tf.matmul(x, tf.cast(own["weight"], style.dtype))
        return result if own["bias"] is None else tf.nn.bias_add(result, tf.cast(own["bias"], style.dtype))
    return _slide(layer, x, own, style)


def _slide(layer: Layer, x: tf.Tensor, own: dict, style: Style) -> tf.Tensor:
    """Apply a convolution or a pooling.

    TensorFlow's "SAME" is uneven under a stride, so it is used only where it equals the graph's
    padding. On a CPU, explicit padding does not use oneDNN's kernels: a max pool is eight times
    slower, and channels-first has no backward pass. So there the image is padded first.
    """
    kind, options = layer.kind, layer.options
    kernel, stride, pads = options["kernel"], options["stride"], options["padding"]
    # TensorFlow's own padding never counts in the divisor.
    counts_padding = kind == "avg_pool" and options["count_padding"]
    is_same = stride == (1, 1) and all(2 * pad == size - 1 for size, pad in zip(kernel, pads))
    sides = x.shape[2:4] if style.is_channels_first else x.shape[1:3]
    padding: Any = "VALID"
    if any(pads):
        edges = style.order_axes([pads[0]] * 2, [pads[1]] * 2, [0, 0], [0, 0])
        if is_same and not counts_padding:
            padding = "SAME"
        elif kind == "conv" and style.is_on_gpu:
            padding = edges
        else:
            x = tf.pad(x, edges, constant_values=x.dtype.min if kind == "max_pool" else 0)
    if kind == "conv":
        weight = tf.cast(own["weight"], style.dtype)
        result = tf.nn.conv2d(x, weight, stride, padding, data_format=style.data_format)
        if own["bias"] is None:
            return result
        return tf.nn.bias_add(result, tf.cast(own["bias"], style.dtype), style.data_format)
    if kind == "max_pool":
        return tf.nn.max_pool2d(x, kernel, stride, padding, data_format=style.data_format)
    if kind != "avg_pool":
        raise NotImplementedError(f"layer kind {kind!r}")
    pooled = tf.nn.avg_pool2d(x, kernel, stride, padding, data_format=style.data_format)
    if any(pads) and padding == "VALID" and not counts_padding:
        factors = prod(kernel) / count_inside(layer, sides)
        factors = factors.reshape(style.order_axes(*factors.shape, 1, 1))
        pooled = pooled * tf.constant(factors, pooled.dtype)
    return pooled


def dropout(layer: Layer, values: tf.Tensor, style: Style) -> tf.Tensor:
    if not (style.has_dropout and style.is_training):
        return values
    # At rate 0 TensorFlow still draws, keeps everything and divides by 1.
    return tf.nn.dropout(values, tf.cast(layer.options["rate"] * style.dropping, values.dtype))


def _batch_norm(
    images: tf.Tensor, own: dict, running: list[Any], layer: Layer, style: Style
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the normalized images and, in training, the new running mean and variance.

    Statistics are float32 whatever the images are. The fused operation does not have float64.
    """
    (mean, variance), eps, momentum = running, layer.options["eps"], BATCH_NORM_MOMENTUM
    if images.dtype != tf.float64:
        # The function tf.compat.v1.nn.fused_batch_norm would raise eps to 1.001e-5.
        result = tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=own["scale"],
            offset=own["shift"],
            mean=mean,
            variance=variance,
            epsilon=eps,
            exponential_avg_factor=momentum,
            data_format=style.data_format,
            is_training=style.is_training,
        )
        return result.y, result.batch_mean, result.batch_variance
    shape = style.order_axes(1, 1, -1, 1)
    values = own["scale"], own["shift"], mean, variance
    scale, shift, used_mean, used_variance = (tf.reshape(value, shape) for value in values)
    if style.is_training:
        axes = [0, 2, 3] if style.is_channels_first else [0, 1, 2]
        used_mean, used_variance = tf.nn.moments(images, axes, keepdims=True)
        count = tf.cast(tf.size(images) / tf.size(used_mean), images.dtype)
        mean = mean + momentum * (tf.reshape(used_mean, [-1]) - mean)
        unbiased = tf.reshape(used_variance, [-1]) * (count / (count - 1))
        variance = variance + momentum * (unbiased - variance)
    result = tf.nn.batch_normalization(images, used_mean, used_variance, shift, scale, eps)
    return result, mean, variance


class UserNetwork:
    """A user's network: a callable that takes images in the config's layout and has
    ``trainable_variables``. In bf16 it gets bfloat16 images and must cast its weights itself.
    """

    loss_weights = LOSS_WEIGHTS

    def __init__(self, config: Config, style: Style, seed: int) -> None:
        self._config, self._style, self._seed = config, style, seed
        self._module: Any = None

    def make_initial_statistics(self) -> NamedArrays:
        return {}  # it keeps its own

    def make_variables(self) -> dict[str, tf.Variable]:
        config, style = self._config, self._style
        tf.random.set_seed(self._seed)
        module = call_user_function(config)
        if not callable(module) or not hasattr(module, "trainable_variables"):
            kind = type(module).__name__
            problem = "not callable, or without trainable_variables"
            raise TypeError(f"{config.model} returned {kind}: {problem}")
        self._module = module
        self._takes_training = "training" in inspect.signature(module.__call__).parameters
        if not module.trainable_variables:  # many are built by their first images
            self(tf.zeros(style.make_batch_shape(1, config), style.weight_dtype), {}, {})
        variables = enumerate(module.trainable_variables)
        return {f"{number}:{variable.name}": variable for number, variable in variables}

    def to_canonical(self, values: Any) -> Any:
        return values

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True, dropping: Any = 1.0
    ) -> tuple[list[tf.Tensor], dict]:
        extra = {"training": training} if self._takes_training else {}
        outputs = self._module(tf.cast(images, self._style.dtype), **extra)
        return [tf.cast(head, self._style.weight_dtype) for head in list_heads(outputs)], {}


def build(config: Config, style: Style, seed: int) -> GraphNetwork | UserNetwork:
    graph = find_graph(config)
    return UserNetwork(config, style, seed) if graph is None else GraphNetwork(graph, style, seed)


def count_correct(heads: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    # ``==`` would compare objects where TensorFlow is not eager.
    return tf.math.count_nonzero(tf.equal(tf.argmax(heads[0], axis=1), labels))


def trace(forward: Any, config: Config, style: Style) -> tf.Graph:
    shape = style.make_batch_shape(1, config)
    return tf.function(forward).get_concrete_function(tf.TensorSpec(shape, style.weight_dtype)).graph


def count_macs(graph: tf.Graph) -> int:
    total = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "DepthwiseConv2dNative", "MatMul"):
            # The weights are applied once for each place of a map, or once for each row.
            output = operation.outputs[0].shape.as_list()
            if operation.type == "MatMul":
                places = output[:1]
            else:
                places = output[2:] if operation.get_attr("data_format") == b"NCHW" else output[1:3]
            total += prod(operation.inputs[1].shape.as_list()) * prod(places)
    return total


def count_values(variables: Mapping[str, tf.Variable]) -> int:
    return sum(int(variable.shape.num_elements()) for variable in variables.values())
