"""Networks as Keras models, alike on every backend: from the framework-neutral graph, from keras.applications, or from
a user's own function.

Layout and precision are Keras' own global settings (``settings`` sets them); layers read them when they are made.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from math import prod
from typing import Any

import keras
import numpy as np
from keras import layers

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ..user_networks import LOSS_WEIGHTS, call_user_function
from .padding import AverageWithoutPadding, PadForMaximum, is_same

_POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}
_FORMATS = {"nchw": "channels_first", "nhwc": "channels_last"}
# What the graph calls a layer's parameters, and what Keras does.
_ATTRIBUTES = {"weight": "kernel", "bias": "bias", "scale": "gamma", "shift": "beta"}
# The graph's own initial weights are put in afterwards; random ones would be compiled shape by shape on JAX.
_EMPTY = "zeros"


@dataclass(frozen=True)
class Network:
    """A model and the weights of its outputs in the loss. ``canonical``, in canonical order, says what each trainable
    variable is, by its place among the model's.
    """

    model: keras.Model
    loss_weights: tuple[float, ...]
    canonical: dict[int, Canonical] = field(repr=False)

    @property
    def parameter_count(self) -> int:
        return sum(prod(variable.shape) for variable in self.model.trainable_variables)

    def weights(self, values: list[Any]) -> dict[str, Any]:
        """By canonical name and in canonical layout; ``values`` are those of the model's trainable variables."""
        return {entry.name: entry.out(values[place]) for place, entry in self.canonical.items()}


@dataclass(frozen=True)
class Canonical:
    """How a variable's array becomes the canonical one and back: Keras keeps HWIO and (in, out). ``order``, where a
    dense layer reads a flattened image whose channels lie last, gives each input's place among the canonical ones.
    """

    name: str
    order: Any = None

    def out(self, values: Any) -> Any:
        if self.order is not None:
            back = np.empty_like(values)
            back[self.order] = values
            values = back
        return np.ascontiguousarray(values.transpose((3, 2, 0, 1) if values.ndim == 4 else None))

    def into(self, values: Any) -> Any:
        values = values.transpose((2, 3, 1, 0) if values.ndim == 4 else None)
        return values if self.order is None else values[self.order]


@dataclass(frozen=True)
class AsItIs:
    """A variable of a network that has no canonical form: under its path in the model."""

    name: str

    def out(self, values: Any) -> Any:
        return values


def settings(precision: str, layout: str) -> None:
    if precision == "fp64":
        # Whatever its floatx, Keras takes means and products in 32 bits on JAX and PyTorch: its own table says so.
        dtypes = importlib.import_module("keras.src.backend.common.dtypes")
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
    keras.config.set_floatx("float64" if precision == "fp64" else "float32")
    keras.config.set_dtype_policy(_POLICIES[precision])
    keras.config.set_image_data_format(_FORMATS[layout])


def channels_first() -> bool:
    return keras.config.image_data_format() == "channels_first"


def image_shape(config: Config) -> tuple[int, ...]:
    channels, *sides = models.samples_of(config.model).shape(config)
    return (channels, *sides) if channels_first() else (*sides, channels)


def build(config: Config, seed: int, dropout: bool = True) -> Network:
    """With the same initial weights for every rank."""
    if models.resolve(config.model) is None:
        return build_foreign(config, seed)
    graph = models.build(config.model, config.image_size, config.classes)
    model = from_graph(graph, image_shape(config), dropout)
    orders = _feature_orders(graph)
    weights = initial_weights(graph, seed)
    places = {variable.path: place for place, variable in enumerate(model.trainable_variables)}
    canonical = {}
    for parameter in graph.parameters():
        layer = graph.layer(parameter.layer)
        variable = getattr(model.get_layer(layer.identifier), _ATTRIBUTES[parameter.role])
        # A dense layer's bias belongs to what it gives, its weight and all of batch norm to what they receive.
        order = None if parameter.role == "bias" else orders[layer.inputs[0]]
        entry = Canonical(parameter.name, order)
        variable.assign(entry.into(weights[parameter.name]))
        canonical[places[variable.path]] = entry
    return Network(model, tuple(head.loss_weight for head in graph.heads), canonical)


def from_graph(graph: Graph, shape: tuple[int, ...], dropout: bool = True) -> keras.Model:
    values: dict[str, Any] = {}
    for layer in graph.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.kind == "input":
            values[layer.name] = images = keras.Input(shape)
        elif layer.kind == "dropout" and not dropout:
            values[layer.name] = inputs[0]
        else:
            values[layer.name] = _apply(graph, layer, inputs)
    outputs = [values[head.layer] for head in graph.heads]
    return keras.Model(images, outputs if len(outputs) > 1 else outputs[0])


def _apply(graph: Graph, layer: Layer, inputs: list[Any]) -> Any:
    options, name = layer.options, layer.identifier
    channel_axis = 1 if channels_first() else -1
    if layer.kind == "concat":
        return layers.Concatenate(axis=channel_axis if len(layer.shape) == 3 else -1, name=name)(inputs)
    if layer.kind == "add":
        return layers.Add(name=name)(inputs)
    incoming = graph.input_shapes(layer)[0]
    if layer.kind in ("conv", "max_pool", "avg_pool"):
        return _windowed(layer, incoming, inputs[0])
    if layer.kind == "dense":
        made = layers.Dense(options["features"], use_bias=options["bias"], kernel_initializer=_EMPTY, name=name)
    elif layer.kind == "batch_norm":
        # Keras' momentum is the weight of the old statistics. Its running variance takes the biased batch variance, not
        # the unbiased one as in PyTorch; no number of training depends on it, those of validation a little.
        axis = channel_axis if len(incoming) == 3 else -1
        made = layers.BatchNormalization(axis, 1 - BATCH_NORM_MOMENTUM, options["eps"], name=name)
    elif layer.kind == "relu":
        made = layers.Activation("relu", name=name)
    elif layer.kind == "global_avg_pool":
        made = layers.GlobalAveragePooling2D(name=name)
    elif layer.kind == "flatten":
        # Told channels_first, Keras' Flatten would move the channels last first. This only reshapes.
        made = layers.Flatten(data_format="channels_last", name=name)
    elif layer.kind == "dropout":
        made = layers.Dropout(options["rate"], name=name)
    else:
        raise NotImplementedError(f"layer kind {layer.kind!r}")
    return made(inputs[0])


def _windowed(layer: Layer, incoming: tuple[int, ...], images: Any) -> Any:
    """A convolution or a pooling. Keras pads as it likes ("same") or not at all; where its "same" is not what the graph
    asks for, a layer in front pads.
    """
    options, name = layer.options, layer.identifier
    kernel, stride, padding = options["kernel"], options["stride"], options["padding"]
    same = any(padding) and is_same(incoming[1:], kernel, stride, padding)
    if layer.kind == "avg_pool" and any(padding):
        same = same and not options["count_padding"]
        if not same and not options["count_padding"]:
            return AverageWithoutPadding(kernel, stride, padding, incoming[1:], name=name)(images)
    if any(padding) and not same:
        pad = PadForMaximum if layer.kind == "max_pool" else layers.ZeroPadding2D
        images = pad(padding, name=f"{name}_padding")(images)
    mode = "same" if same else "valid"
    if layer.kind == "conv":
        made = layers.Conv2D(
            options["filters"], kernel, stride, mode, use_bias=options["bias"], kernel_initializer=_EMPTY, name=name
        )
    else:
        pooling = layers.MaxPooling2D if layer.kind == "max_pool" else layers.AveragePooling2D
        made = pooling(kernel, stride, mode, name=name)
    return made(images)


def _feature_orders(graph: Graph) -> dict[str, Any]:
    """For each layer's output: where its features stand among the canonical ones, or None where they stand alike.

    A flattened image is canonically channel by channel; one whose channels lie last comes out place by place.
    """
    orders: dict[str, Any] = {}
    for layer in graph.layers:
        incoming = graph.input_shapes(layer)
        if layer.kind == "flatten" and len(incoming[0]) == 3:
            places = np.arange(prod(incoming[0])).reshape(incoming[0])
            orders[layer.name] = None if channels_first() else places.transpose(1, 2, 0).ravel()
        elif len(layer.shape) == 1 and layer.kind in ("concat", "add"):
            orders[layer.name] = _joined(layer, incoming, [orders[name] for name in layer.inputs])
        elif len(layer.shape) == 1 and layer.kind in ("relu", "dropout", "batch_norm", "flatten"):
            orders[layer.name] = orders[layer.inputs[0]]
        else:
            orders[layer.name] = None
    return orders


def _joined(layer: Layer, incoming: tuple[tuple[int, ...], ...], orders: list[Any]) -> Any:
    if all(order is None for order in orders):
        return None
    whole = [np.arange(shape[0]) if order is None else order for shape, order in zip(incoming, orders)]
    if layer.kind == "concat":
        starts = np.cumsum([0] + [len(order) for order in whole])
        return np.concatenate([start + order for start, order in zip(starts, whole)])
    if not all(np.array_equal(order, whole[0]) for order in whole):
        raise NotImplementedError(f"layer {layer.name}: adds features that lie in different orders in layout nhwc")
    return whole[0]


def build_foreign(config: Config, seed: int) -> Network:
    """``keras:NAME`` of keras.applications, or ``package.module:function``; weights are random, by seed."""
    library, _, name = config.model.partition(":")
    keras.utils.set_random_seed(seed)
    if library == "keras":
        model = getattr(keras.applications, name)(
            weights=None, classes=config.classes, input_shape=image_shape(config), classifier_activation=None
        )
    else:
        model = call_user_function(config, input_shape=image_shape(config))
    if not isinstance(model, keras.Model):
        raise TypeError(f"{config.model} returned {type(model).__name__}, not a keras.Model")
    model(
        keras.ops.zeros((1, *image_shape(config))), training=False
    )  # a model of a class of its own is built by a call
    canonical = {place: AsItIs(variable.path) for place, variable in enumerate(model.trainable_variables)}
    return Network(model, LOSS_WEIGHTS, canonical)


def own_seeds(model: keras.Model, seed: int) -> dict[str, Any]:
    """The state of each layer's random generator, by its path. Dropout differs between ranks though weights do not."""
    generators = [layer.seed_generator for layer in _all_layers(model) if hasattr(layer, "seed_generator")]
    return {
        generator.state.path: np.array([seed, number << 20], dtype=generator.state.dtype)
        for number, generator in enumerate(generators)
    }


def macs(model: keras.Model) -> int:
    """Of one image, from the kernels of the layers and the shapes that they give."""
    found = 0
    for layer in _all_layers(model):
        kernel = getattr(layer, "kernel", None)
        if isinstance(layer, layers.Dense):
            found += prod(kernel.shape)
        elif kernel is not None:
            places = layer.output.shape[2:] if channels_first() else layer.output.shape[1:-1]
            found += prod(kernel.shape) * prod(places)
    return found


def _all_layers(model: keras.Model) -> list[keras.Layer]:
    found = []
    for layer in model.layers:
        found += _all_layers(layer) if isinstance(layer, keras.Model) else [layer]
    return found
