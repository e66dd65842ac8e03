"""Networks as Keras models, alike on every backend: from the framework-neutral graph, from keras.applications, or from
a user's own function.

Layout and precision are global settings of Keras (see ``configure``), which layers read when they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
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
from ...type_aliases import NamedArrays
from ..user_networks import LOSS_WEIGHTS, call_user_function
from .dropout import SwitchableDropout
from .padding import AverageWithoutPadding, PadForMaximum, is_same
from .weight_layout import CanonicalVariable, UserVariable, find_feature_orders

_POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}
_FORMATS = {"nchw": "channels_first", "nhwc": "channels_last"}
# What the graph calls a layer's parameters, and what Keras does.
_ATTRIBUTES = {"weight": "kernel", "bias": "bias", "scale": "gamma", "shift": "beta"}
# The graph's initial weights are assigned later. JAX would compile random ones shape by shape.
_EMPTY = "zeros"


@dataclass(frozen=True)
class KerasNetwork:
    """A model and the loss weights of its outputs. ``canonical``, in canonical order, describes each trainable variable
    by its place among the model's.
    """

    model: keras.Model
    loss_weights: tuple[float, ...]
    canonical: dict[int, CanonicalVariable | UserVariable] = field(repr=False)

    @property
    def parameter_count(self) -> int:
        return sum(prod(variable.shape) for variable in self.model.trainable_variables)

    def to_canonical(self, values: list[Any]) -> NamedArrays:
        """Return the values of the model's trainable variables by canonical name and in canonical layout."""
        return {variable.name: variable.to_canonical(values[place]) for place, variable in self.canonical.items()}

    def to_native(self, weights: Mapping[str, Any]) -> dict[int, Any]:
        """Return arrays of a network of the catalogue in Keras' layout, by the place of their variables."""
        converters = {
            place: variable for place, variable in self.canonical.items() if isinstance(variable, CanonicalVariable)
        }
        return {place: converter.to_native(weights[converter.name]) for place, converter in converters.items()}


def configure(precision: str, layout: str) -> None:
    if precision == "fp64":
        # Whatever its floatx, Keras computes means and products in 32 bits on JAX and PyTorch, by a table of its own.
        dtypes = importlib.import_module("keras.src.backend.common.dtypes")
        dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
    keras.config.set_floatx("float64" if precision == "fp64" else "float32")
    keras.config.set_dtype_policy(_POLICIES[precision])
    keras.config.set_image_data_format(_FORMATS[layout])


def is_channels_first() -> bool:
    return keras.config.image_data_format() == "channels_first"


def compute_image_shape(config: Config) -> tuple[int, ...]:
    channels, *sides = models.find_samples(config.model).shape(config)
    return (channels, *sides) if is_channels_first() else (*sides, channels)


def build(config: Config, seed: int, dropout: bool = True) -> KerasNetwork:
    """Build a network with the same initial weights on every rank."""
    if models.resolve(config.model) is None:
        return build_foreign(config, seed)
    graph = models.build(config.model, config.image_size, config.classes)
    model = from_graph(graph, compute_image_shape(config), dropout)
    orders = find_feature_orders(graph, is_channels_first())
    weights = initial_weights(graph, seed)
    places = {variable.path: place for place, variable in enumerate(model.trainable_variables)}
    canonical = {}
    for parameter in graph.parameters():
        layer = graph.layer(parameter.layer)
        variable = getattr(model.get_layer(layer.identifier), _ATTRIBUTES[parameter.role])
        # A dense layer's bias is ordered like its output; its weight and all of batch norm like their input.
        order = None if parameter.role == "bias" else orders[layer.inputs[0]]
        converter = CanonicalVariable(parameter.name, order)
        variable.assign(converter.to_native(weights[parameter.name]))
        canonical[places[variable.path]] = converter
    return KerasNetwork(model, tuple(head.loss_weight for head in graph.heads), canonical)


def from_graph(graph: Graph, shape: tuple[int, ...], dropout: bool = True) -> keras.Model:
    values: NamedArrays = {}
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
    channel_axis = 1 if is_channels_first() else -1
    if layer.kind == "concat":
        return layers.Concatenate(axis=channel_axis if len(layer.shape) == 3 else -1, name=name)(inputs)
    if layer.kind == "add":
        return layers.Add(name=name)(inputs)
    incoming = graph.input_shapes(layer)[0]
    if layer.kind in ("conv", "max_pool", "avg_pool"):
        return _apply_windowed(layer, incoming, inputs[0])
    if layer.kind == "dense":
        native = layers.Dense(options["features"], use_bias=options["bias"], kernel_initializer=_EMPTY, name=name)
    elif layer.kind == "batch_norm":
        # Keras' momentum is the weight of the old statistics. Its running variance uses the biased batch variance, and
        # PyTorch's the unbiased one. Training does not depend on it, validation a little.
        axis = channel_axis if len(incoming) == 3 else -1
        native = layers.BatchNormalization(axis, 1 - BATCH_NORM_MOMENTUM, options["eps"], name=name)
    elif layer.kind == "relu":
        native = layers.Activation("relu", name=name)
    elif layer.kind == "global_avg_pool":
        native = layers.GlobalAveragePooling2D(name=name)
    elif layer.kind == "flatten":
        # With channels_first, Keras' Flatten would move the channels to the end before it reshapes.
        native = layers.Flatten(data_format="channels_last", name=name)
    elif layer.kind == "dropout":
        native = SwitchableDropout(options["rate"], name=name)
    else:
        raise NotImplementedError(f"layer kind {layer.kind!r}")
    return native(inputs[0])


def _apply_windowed(layer: Layer, incoming: tuple[int, ...], images: Any) -> Any:
    """Apply a convolution or a pooling.

    Keras pads as "same" or not at all. Where its "same" is not the graph's padding, a layer in front pads.
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
        native = layers.Conv2D(
            options["filters"], kernel, stride, mode, use_bias=options["bias"], kernel_initializer=_EMPTY, name=name
        )
    else:
        pooling = layers.MaxPooling2D if layer.kind == "max_pool" else layers.AveragePooling2D
        native = pooling(kernel, stride, mode, name=name)
    return native(images)


def build_foreign(config: Config, seed: int) -> KerasNetwork:
    """Build ``keras:NAME`` of keras.applications or ``package.module:function``; weights are random, by seed."""
    library, _, name = config.model.partition(":")
    keras.utils.set_random_seed(seed)
    if library == "keras":
        model = getattr(keras.applications, name)(
            weights=None, classes=config.classes, input_shape=compute_image_shape(config), classifier_activation=None
        )
    else:
        model = call_user_function(config, input_shape=compute_image_shape(config))
    if not isinstance(model, keras.Model):
        raise TypeError(f"{config.model} returned {type(model).__name__}, not a keras.Model")
    # A call builds a model of a user's own class.
    model(keras.ops.zeros((1, *compute_image_shape(config))), training=False)
    canonical = {place: UserVariable(variable.path) for place, variable in enumerate(model.trainable_variables)}
    return KerasNetwork(model, LOSS_WEIGHTS, canonical)


def make_random_states(model: keras.Model, seed: int) -> NamedArrays:
    """Return the state of each layer's random generator by its path. Dropout differs between ranks, weights do not."""
    generators = [layer.seed_generator for layer in _list_layers(model) if hasattr(layer, "seed_generator")]
    return {
        generator.state.path: np.array([seed, number << 20], dtype=generator.state.dtype)
        for number, generator in enumerate(generators)
    }


def list_dropout_switches(model: keras.Model) -> list[Any]:
    """Return the variable of each dropout layer that switches it on (1) or off (0)."""
    return [layer.active for layer in _list_layers(model) if isinstance(layer, SwitchableDropout)]


def find_statistics_variables(model: keras.Model, graph: Graph) -> NamedArrays:
    """Return the variables that hold the running statistics of batch norms, by canonical name."""
    variables = {}
    for layer in graph.layers:
        if layer.kind == "batch_norm":
            native = model.get_layer(layer.identifier)
            variables[f"{layer.name}.mean"] = native.moving_mean
            variables[f"{layer.name}.variance"] = native.moving_variance
    return variables


def count_macs(model: keras.Model) -> int:
    """Count the multiply-adds of one image by the kernels of the layers and the shapes of their outputs."""
    total = 0
    for layer in _list_layers(model):
        kernel = getattr(layer, "kernel", None)
        if isinstance(layer, layers.Dense):
            total += prod(kernel.shape)
        elif kernel is not None:
            places = layer.output.shape[2:] if is_channels_first() else layer.output.shape[1:-1]
            total += prod(kernel.shape) * prod(places)
    return total


def _list_layers(model: keras.Model) -> list[keras.Layer]:
    flat = []
    for layer in model.layers:
        flat += _list_layers(layer) if isinstance(layer, keras.Model) else [layer]
    return flat
