"""Networks as TensorFlow operations: from the framework-neutral graph, or from a user's own function.

A network is called with images, its parameters and the running statistics of its batch norms. It returns the logits of
its heads and the new statistics. The engines decide where parameters are: in a variable of this process, in a mirrored
one, or in a copy of what a parameter server holds.

TensorFlow pads differently. Its "SAME" is uneven under a stride, so it is used only where it equals the graph's
padding. On a CPU, explicit padding does not use oneDNN's kernels: a max pool becomes eight times slower, a
convolution's backward pass a third, and channels-first has no backward pass at all. So there the image is padded first.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ..base import LOSS_WEIGHTS, call_user_function, count_inside, list_heads

_ORDER_FREE = ("relu", "dropout")  # layers for which the order of a vector's elements does not matter


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
        """Return the shape of ``count`` images in this layout."""
        channels, *sides = models.find_samples(config.model).shape(config)
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


def _add_bias(value: tf.Tensor, bias: Any, style: Style) -> tf.Tensor:
    data_format = style.data_format if value.shape.rank == 4 else None
    return tf.nn.bias_add(value, tf.cast(bias, style.dtype), data_format=data_format)


def _batch_norm(
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


def _flatten(images: tf.Tensor, style: Style, weights_are_permuted: bool) -> tf.Tensor:
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


_WEIGHTED = {"conv": _conv, "dense": _dense}
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


class GraphNetwork:
    """The graph as tf.nn operations. Its parameters have canonical names and TensorFlow's layout."""

    def __init__(self, graph: Graph, style: Style, seed: int) -> None:
        self.graph = graph
        self._seed = seed
        self.loss_weights = tuple(head.loss_weight for head in graph.heads)
        self._style = style
        self._flattened = {} if style.is_channels_first else _find_flattened_images(graph)

    def make_initial_parameters(self) -> dict[str, np.ndarray]:
        return self.to_native(initial_weights(self.graph, self._seed))

    def to_native(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return canonical arrays in TensorFlow's layout."""
        return {
            name: self._to_native(name, values).astype(self._style.weight_dtype) for name, values in weights.items()
        }

    def make_initial_statistics(self) -> dict[str, np.ndarray]:
        dtype = self._style.weight_dtype
        statistics = {}
        for layer in self.graph.layers:
            if layer.kind == "batch_norm":
                statistics[f"{layer.name}.mean"] = np.zeros(layer.shape[0], dtype)
                statistics[f"{layer.name}.variance"] = np.ones(layer.shape[0], dtype)
        return statistics

    def make_variables(self) -> dict[str, tf.Variable]:
        return {name: tf.Variable(values) for name, values in self.make_initial_parameters().items()}

    def make_empty_variables(self, placement: Callable[[dict[str, int]], dict[str, Any]]) -> dict[str, tf.Variable]:
        """Make variables without their initial values, which would make a graph that is sent to others large.

        ``placement`` gives, for the sizes of all variables, the context in which each is made.
        """
        shapes = self._list_native_shapes()
        contexts = placement({name: prod(shape) for name, shape in shapes.items()})
        variables = {}
        for name, shape in shapes.items():
            with contexts[name]:
                variables[name] = tf.Variable(tf.zeros(shape, self._style.weight_dtype), name=name.replace(".", "/"))
        return variables

    def to_canonical(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return values in OIHW and (out, in) instead of TensorFlow's layout."""
        if values.ndim == 4:
            return np.ascontiguousarray(values.transpose(3, 2, 0, 1))
        if name in self._flattened:
            channels, height, width = self._flattened[name]
            images = values.reshape(height, width, channels, -1).transpose(3, 2, 0, 1)
            return np.ascontiguousarray(images.reshape(len(images), -1))
        return np.array(values.T, order="C")  # always a copy: a small one could share memory with its variable

    def _to_native(self, name: str, values: np.ndarray) -> np.ndarray:
        if values.ndim == 4:
            return values.transpose(2, 3, 1, 0)
        if name in self._flattened:
            images = values.reshape(len(values), *self._flattened[name]).transpose(2, 3, 1, 0)
            return images.reshape(-1, len(values))
        return values.T

    def _list_native_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {}
        for parameter in self.graph.parameters():
            transposed = len(parameter.shape) in (2, 4)
            shapes[parameter.name] = (*parameter.shape[2:], *parameter.shape[1::-1]) if transposed else parameter.shape
        return shapes

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True, dropping: Any = 1.0
    ) -> tuple[list[tf.Tensor], dict]:
        style = dataclasses.replace(self._style, is_training=training, dropping=dropping)
        values, new_statistics = {}, {}
        for layer in self.graph.layers:
            inputs = [values[name] for name in layer.inputs]
            if layer.kind == "input":
                value = tf.cast(images, style.dtype)
            elif layer.kind == "batch_norm":
                weights = tuple(parameters[f"{layer.name}.{role}"] for role in ("scale", "shift"))
                names = f"{layer.name}.mean", f"{layer.name}.variance"
                running = tuple(statistics[name] for name in names)
                value, *after = _batch_norm(inputs[0], weights, running, layer.options["eps"], style)
                new_statistics.update(zip(names, after))
            elif layer.kind in ("conv", "dense"):
                weight = tf.cast(parameters[f"{layer.name}.weight"], style.dtype)
                value = _WEIGHTED[layer.kind](inputs[0], weight, layer, style)
                if layer.options["bias"]:
                    value = _add_bias(value, parameters[f"{layer.name}.bias"], style)
            elif layer.kind == "flatten":
                value = _flatten(inputs[0], style, weights_are_permuted=self._are_weights_permuted(layer))
            else:
                value = PLAIN[layer.kind](inputs, layer, style)
            values[layer.name] = value
        return [tf.cast(values[head.layer], style.weight_dtype) for head in self.graph.heads], new_statistics

    def _are_weights_permuted(self, layer: Layer) -> bool:
        dense = _find_dense_readers(self.graph, layer)
        return dense is not None and all(f"{name}.weight" in self._flattened for name in dense)


def _find_flattened_images(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the dense weights that read a flattened image, with its (C, H, W).

    Channels-last images flatten in another order than the canonical one. To permute the weights once is cheaper than to
    permute the images in every step.
    """
    return {
        f"{name}.weight": graph.input_shapes(layer)[0]
        for layer in graph.layers
        if layer.kind == "flatten"
        for name in _find_dense_readers(graph, layer) or ()
    }


def _find_dense_readers(graph: Graph, layer: Layer) -> list[str] | None:
    """Return the dense layers that read this one, through ReLU and dropout; None if anything else reads it."""
    if any(head.layer == layer.name for head in graph.heads):
        return None
    names: list[str] = []
    for reader in graph.layers:
        if layer.name not in reader.inputs:
            continue
        further = _find_dense_readers(graph, reader) if reader.kind in _ORDER_FREE else None
        if reader.kind == "dense":
            names.append(reader.name)
        elif further is None:
            return None
        else:
            names += further
    return names


class UserNetwork:
    """A user's network: a callable that takes images in the config's layout and has ``trainable_variables``.

    In bf16 it gets bfloat16 images and must cast its weights itself. One without a parameter ``training`` computes the
    same in training and in prediction.
    """

    loss_weights = LOSS_WEIGHTS

    def __init__(self, config: Config, style: Style, seed: int) -> None:
        self._config, self._style, self._seed = config, style, seed
        self._module: Any = None

    def make_initial_statistics(self) -> dict[str, np.ndarray]:
        return {}  # it keeps its own

    def make_variables(self) -> dict[str, tf.Variable]:
        config, style = self._config, self._style
        tf.random.set_seed(self._seed)
        module = call_user_function(config)
        if not callable(module) or not hasattr(module, "trainable_variables"):
            kind = type(module).__name__
            raise TypeError(f"{config.model} returned {kind}: not callable, or without trainable_variables")
        self._module = module
        self._takes_training = "training" in inspect.signature(module.__call__).parameters
        if not module.trainable_variables:  # many are built by their first images
            self(tf.zeros(style.make_batch_shape(1, config), style.weight_dtype), {}, {})
        return {f"{number}:{variable.name}": variable for number, variable in enumerate(module.trainable_variables)}

    def make_empty_variables(self, placement: Callable[[dict[str, int]], dict[str, Any]]) -> dict[str, tf.Variable]:
        """Return the user's own variables, with their values, where TensorFlow places them."""
        return self.make_variables()

    def to_canonical(self, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True, dropping: Any = 1.0
    ) -> tuple[list[tf.Tensor], dict]:
        extra = {"training": training} if self._takes_training else {}
        outputs = self._module(tf.cast(images, self._style.dtype), **extra)
        return [tf.cast(head, self._style.weight_dtype) for head in list_heads(outputs)], {}


def build(config: Config, style: Style, seed: int) -> GraphNetwork | UserNetwork:
    if models.resolve(config.model) is None:
        return UserNetwork(config, style, seed)
    return GraphNetwork(models.build(config.model, config.image_size, config.classes), style, seed)


def count_correct(heads: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    """Count correct predictions of the first head. ``==`` would compare objects where TensorFlow is not eager."""
    return tf.math.count_nonzero(tf.equal(tf.argmax(heads[0], axis=1), labels))


def criterion(heads: list[tf.Tensor], labels: tf.Tensor, loss_weights: tuple[float, ...]) -> tf.Tensor:
    losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=head) for head in heads]
    return tf.add_n([weight * tf.reduce_mean(loss) for weight, loss in zip(loss_weights, losses)])


def trace(forward: Any, config: Config, style: Style) -> tf.Graph:
    """Return the forward pass of one image as TensorFlow's own operations."""
    shape = style.make_batch_shape(1, config)
    return tf.function(forward).get_concrete_function(tf.TensorSpec(shape, style.weight_dtype)).graph


def count_macs(graph: tf.Graph) -> int:
    """Count the multiply-adds of traced operations by their shapes."""
    return sum(_count_operation_macs(operation) for operation in graph.get_operations())


def _count_operation_macs(operation: tf.Operation) -> int:
    if operation.type not in ("Conv2D", "DepthwiseConv2dNative", "MatMul"):
        return 0
    # A convolution applies its weights once for each place of its output map, a matrix product once for each row.
    output = operation.outputs[0].shape.as_list()
    if operation.type == "MatMul":
        places = output[:1]
    else:
        places = output[2:] if operation.get_attr("data_format") == b"NCHW" else output[1:3]
    return prod(operation.inputs[1].shape.as_list()) * prod(places)


def count_values(variables: Mapping[str, tf.Variable]) -> int:
    return sum(int(variable.shape.num_elements()) for variable in variables.values())
