"""Networks as Keras models: from the graph, keras.applications, or a user's own function.

Layout and precision are global settings of Keras, which layers read when they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ...type_aliases import NamedArrays
from ..base import LOSS_WEIGHTS, call_user_function, count_inside, find_graph, transpose, transpose_back

_POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}
_FORMATS = {"nchw": "channels_first", "nhwc": "channels_last"}
# What the graph calls a layer's parameters, and what Keras does.
_ATTRIBUTES = {"weight": "kernel", "bias": "bias", "scale": "gamma", "shift": "beta"}
# Initial weights are assigned later. JAX would compile random ones shape by shape.
_EMPTY = "zeros"


@dataclass(frozen=True)
class KerasNetwork:
    """A model, the loss weights of its outputs, and by canonical name the place of each trainable
    variable among the model's. Of a user's network the names are paths in the model.
    """

    model: keras.Model
    loss_weights: tuple[float, ...]
    places: dict[str, int]
    graph: Graph | None = None

    @property
    def parameter_count(self) -> int:
        return sum(prod(variable.shape) for variable in self.model.trainable_variables)

    def to_canonical(self, values: list[Any]) -> NamedArrays:
        arrays = {name: values[place] for name, place in self.places.items()}
        if self.graph is None:
            return arrays
        return {name: np.ascontiguousarray(transpose_back(array)) for name, array in arrays.items()}

    def to_native(self, weights: Mapping[str, Any]) -> list[Any]:
        names = sorted(self.places, key=self.places.__getitem__)
        return [transpose(weights[name]) for name in names]


def configure(precision: str, layout: str) -> None:
    if precision == "fp64":
        # Otherwise, by this table, Keras computes means and products in 32 bits.
        dtypes = importlib.import_module("keras.src.backend.common.dtypes")
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
    keras.config.set_floatx("float64" if precision == "fp64" else "float32")
    keras.config.set_dtype_policy(_POLICIES[precision])
    keras.config.set_image_data_format(_FORMATS[layout])


def is_channels_first() -> bool:
    return keras.config.image_data_format() == "channels_first"


def order_axes(height: Any, width: Any, channels: Any, batch: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return one entry for each axis of images."""
    sides = (channels, height, width) if is_channels_first() else (height, width, channels)
    return (*batch, *sides)


def compute_image_shape(config: Config) -> tuple[int, ...]:
    channels, height, width = models.find_samples(config.model).shape(config)
    return order_axes(height, width, channels)


def build(config: Config, seed: int, dropout: bool = True) -> KerasNetwork:
    graph = find_graph(config)
    if graph is None:
        return build_foreign(config, seed)
    values: NamedArrays = {}
    for layer in graph.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.kind == "input":
            values[layer.name] = images = keras.Input(compute_image_shape(config))
        elif layer.kind == "dropout" and not dropout:
            values[layer.name] = inputs[0]
        else:
            values[layer.name] = _apply(graph, layer, inputs)
    outputs = [values[head.layer] for head in graph.heads]
    model = keras.Model(images, outputs if len(outputs) > 1 else outputs[0])
    weights = initial_weights(graph, seed)
    paths = [variable.path for variable in model.trainable_variables]
    places = {}
    for parameter in graph.parameters():
        native = model.get_layer(graph.layer(parameter.layer).identifier)
        variable = getattr(native, _ATTRIBUTES[parameter.role])
        variable.assign(transpose(weights[parameter.name]))
        places[parameter.name] = paths.index(variable.path)
    return KerasNetwork(model, tuple(head.loss_weight for head in graph.heads), places, graph)


def _apply(graph: Graph, layer: Layer, inputs: list[Any]) -> Any:
    kind, options, name = layer.kind, layer.options, layer.identifier
    incoming = graph.input_shapes(layer)[0]
    channel_axis = 1 if is_channels_first() and len(incoming) == 3 else -1
    if kind == "concat":
        return layers.Concatenate(axis=channel_axis, name=name)(inputs)
    if kind == "add":
        return layers.Add(name=name)(inputs)
    if kind in ("conv", "max_pool", "avg_pool"):
        return _slide(layer, incoming[1:], inputs[0])
    if kind == "dense":
        features, bias = options["features"], options["bias"]
        native = layers.Dense(features, use_bias=bias, kernel_initializer=_EMPTY, name=name)
    elif kind == "batch_norm":
        momentum = 1 - BATCH_NORM_MOMENTUM  # the weight of the old statistics
        native = layers.BatchNormalization(channel_axis, momentum, options["eps"], name=name)
    elif kind == "relu":
        native = layers.Activation("relu", name=name)
    elif kind == "global_avg_pool":
        native = layers.GlobalAveragePooling2D(name=name)
    elif kind == "flatten":
        images = inputs[0]
        if not is_channels_first():  # in canonical order the channel is slowest
            images = layers.Permute((3, 1, 2), name=f"{name}_order")(images)
        return layers.Flatten(data_format="channels_last", name=name)(images)
    elif kind == "dropout":
        native = SwitchableDropout(options["rate"], name=name)
    else:
        raise NotImplementedError(f"layer kind {kind!r}")
    return native(inputs[0])


def _slide(layer: Layer, sides: tuple[int, ...], images: Any) -> Any:
    """Apply a convolution or a pooling.

    Keras pads as "same", the least that gives ceil(size / stride) places, or not at all. Where that
    is not the graph's padding on both sides, the image is padded first.
    """
    kind, options, name = layer.kind, layer.options, layer.identifier
    kernel, stride, padding = options["kernel"], options["stride"], options["padding"]
    # Keras' own padding never counts in the divisor.
    counts_padding = kind == "avg_pool" and options["count_padding"]
    is_padded = any(padding)
    is_same = all(
        max((-(-size // step) - 1) * step + window - size, 0) == 2 * pad
        for size, window, step, pad in zip(sides, kernel, stride, padding)
    )
    mode = "same" if is_padded and is_same and not counts_padding else "valid"
    if is_padded and mode == "valid":
        height, width = ((pad, pad) for pad in padding)
        fill = -float("inf") if kind == "max_pool" else 0.0
        images = ops.pad(images, order_axes(height, width, (0, 0), ((0, 0),)), constant_values=fill)
    if kind == "conv":
        return layers.Conv2D(
            options["filters"], kernel, stride, mode, use_bias=options["bias"], kernel_initializer=_EMPTY, name=name
        )(images)
    pooling = layers.MaxPooling2D if kind == "max_pool" else layers.AveragePooling2D
    pooled = pooling(kernel, stride, mode, name=name)(images)
    if kind == "avg_pool" and is_padded and mode == "valid" and not counts_padding:
        factors = prod(kernel) / count_inside(layer, sides)
        factors = factors.reshape(order_axes(*factors.shape, 1, (1,)))
        pooled = pooled * ops.convert_to_tensor(factors, pooled.dtype)
    return pooled


class SwitchableDropout(layers.Layer):
    """Keras' own dropout, applied to ones. Values are multiplied by the result, or by 1 while a
    variable on the device switches it off, so that the compiled program stays the same.
    """

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


def build_foreign(config: Config, seed: int) -> KerasNetwork:
    """Build ``keras:NAME`` of keras.applications or ``package.module:function``, with random weights."""
    library, _, name = config.model.partition(":")
    shape = compute_image_shape(config)
    keras.utils.set_random_seed(seed)
    if library == "keras":
        function = getattr(keras.applications, name)
        options = {"classes": config.classes, "classifier_activation": None}
        model = function(weights=None, input_shape=shape, **options)
    else:
        model = call_user_function(config, input_shape=shape)
    if not isinstance(model, keras.Model):
        raise TypeError(f"{config.model} returned {type(model).__name__}, not a keras.Model")
    model(ops.zeros((1, *shape)), training=False)  # a call builds a model of a user's own class
    places = {variable.path: place for place, variable in enumerate(model.trainable_variables)}
    return KerasNetwork(model, LOSS_WEIGHTS, places)


def list_layers(model: keras.Model) -> list[keras.Layer]:
    flat = []
    for layer in model.layers:
        flat += list_layers(layer) if isinstance(layer, keras.Model) else [layer]
    return flat


def count_macs(model: keras.Model) -> int:
    total = 0
    for layer in list_layers(model):
        kernel = getattr(layer, "kernel", None)
        if isinstance(layer, layers.Dense):
            total += prod(kernel.shape)
        elif kernel is not None:
            places = layer.output.shape[2:] if is_channels_first() else layer.output.shape[1:-1]
            total += prod(kernel.shape) * prod(places)
    return total
