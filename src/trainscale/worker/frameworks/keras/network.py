"""Networks as Keras models, alike on every backend: from the framework-neutral graph, from keras.applications, or from
a user's own function.

Layout and precision are global settings of Keras (see ``configure``), which layers read when they are made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from ..base import LOSS_WEIGHTS, call_user_function, count_inside

_POLICIES = {"fp32": "float32", "tf32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}
_FORMATS = {"nchw": "channels_first", "nhwc": "channels_last"}
# What the graph calls a layer's parameters, and what Keras does.
_ATTRIBUTES = {"weight": "kernel", "bias": "bias", "scale": "gamma", "shift": "beta"}
# The graph's initial weights are assigned later. JAX would compile random ones shape by shape.
_EMPTY = "zeros"


@dataclass(frozen=True)
class CanonicalVariable:
    """Converts a variable's array to the canonical one and back. Keras has HWIO and (in, out).

    ``order`` is for a dense layer that reads a flattened channels-last image: it gives each input's place among the
    canonical inputs.
    """

    name: str
    order: Any = None

    def to_canonical(self, values: Any) -> Any:
        if self.order is not None:
            reordered = np.empty_like(values)
            reordered[self.order] = values
            values = reordered
        return np.ascontiguousarray(values.transpose((3, 2, 0, 1) if values.ndim == 4 else None))

    def to_native(self, values: Any) -> Any:
        values = values.transpose((2, 3, 1, 0) if values.ndim == 4 else None)
        return values if self.order is None else values[self.order]


@dataclass(frozen=True)
class UserVariable:
    """A variable of a user's network. It has no canonical form; its name is its path in the model."""

    name: str

    def to_canonical(self, values: Any) -> Any:
        return values


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
    same = any(padding) and _is_same(incoming[1:], kernel, stride, padding)
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


class SwitchableDropout(layers.Layer):
    """Keras' own dropout, applied to ones. Values are multiplied by the result, or by 1 while it is switched off.

    A variable on the device switches it, and not Python, so that the compiled program stays the same.
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


def _is_same(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether padding="same", the least that gives ceil(size / stride) places, is this padding on both sides."""
    return all(
        max((-(-length // step) - 1) * step + window - length, 0) == 2 * pad
        for length, window, step, pad in zip(size, kernel, stride, padding)
    )


class PadForMaximum(layers.Layer):
    """Pads with minus infinity."""

    def __init__(self, padding: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self._widths = _make_widths(padding)

    def call(self, images: Any) -> Any:
        return ops.pad(images, self._widths, constant_values=-float("inf"))


class AverageWithoutPadding(layers.Layer):
    """Average pooling whose padding does not count in the divisor."""

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        size: Sequence[int],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._window = tuple(kernel), tuple(stride)
        self._widths = _make_widths(padding)
        sides = [count_inside(*axis) for axis in zip(size, kernel, stride, padding)]
        counts = sides[0][:, None] * sides[1][None, :]
        factors = kernel[0] * kernel[1] / counts
        channels_first = keras.config.image_data_format() == "channels_first"
        self._factors = factors[None, None] if channels_first else factors[None, :, :, None]

    def call(self, images: Any) -> Any:
        averages = ops.average_pool(ops.pad(images, self._widths), *self._window)
        return averages * ops.cast(self._factors, averages.dtype)


def _make_widths(padding: Sequence[int]) -> list[tuple[int, int]]:
    of_image = [(pad, pad) for pad in padding]
    if keras.config.image_data_format() == "channels_first":
        return [(0, 0), (0, 0), *of_image]
    return [(0, 0), *of_image, (0, 0)]


def find_feature_orders(graph: Graph, channels_first: bool) -> NamedArrays:
    """Return, for each layer's output, the canonical place of each feature; None where the order is canonical.

    A flattened image is canonically channel by channel. A channels-last image flattens pixel by pixel.
    """
    orders: NamedArrays = {}
    for layer in graph.layers:
        incoming = graph.input_shapes(layer)
        if layer.kind == "flatten" and len(incoming[0]) == 3:
            places = np.arange(prod(incoming[0])).reshape(incoming[0])
            orders[layer.name] = None if channels_first else places.transpose(1, 2, 0).ravel()
        elif len(layer.shape) == 1 and layer.kind in ("concat", "add"):
            orders[layer.name] = _join_orders(layer, incoming, [orders[name] for name in layer.inputs])
        elif len(layer.shape) == 1 and layer.kind in ("relu", "dropout", "batch_norm", "flatten"):
            orders[layer.name] = orders[layer.inputs[0]]
        else:
            orders[layer.name] = None
    return orders


def _join_orders(layer: Layer, incoming: tuple[tuple[int, ...], ...], orders: list[Any]) -> Any:
    if all(order is None for order in orders):
        return None
    explicit = [np.arange(shape[0]) if order is None else order for shape, order in zip(incoming, orders)]
    if layer.kind == "concat":
        starts = np.cumsum([0] + [len(order) for order in explicit])
        return np.concatenate([start + order for start, order in zip(starts, explicit)])
    if not all(np.array_equal(order, explicit[0]) for order in explicit):
        raise NotImplementedError(f"layer {layer.name}: adds features that are in different orders in layout nhwc")
    return explicit[0]


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
    model(ops.zeros((1, *compute_image_shape(config))), training=False)
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
