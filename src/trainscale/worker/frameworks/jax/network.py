"""Networks as pure functions of JAX: from the framework-neutral graph, in jax.lax and in both layouts, or from a user's
own function. Weights are stored in 32 bits and cast to the type of the images where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ...type_aliases import NamedArrays
from ..base import LOSS_WEIGHTS, call_user_function, count_inside, list_heads

_CONVOLUTION = {"nchw": ("NCHW", "OIHW", "NCHW"), "nhwc": ("NHWC", "HWIO", "NHWC")}
_CHANNEL = {"nchw": 1, "nhwc": 3}
_SPATIAL = {"nchw": (2, 3), "nhwc": (1, 2)}
# From the graph's OIHW and (out, in) to what a layer here multiplies with, by layout and number of axes.
_NATIVE_AXES = {"nhwc": {4: (2, 3, 1, 0), 2: (1, 0)}, "nchw": {2: (1, 0)}}


@dataclass(frozen=True)
class JaxNetwork:
    """``apply(parameters, statistics, images, key)`` returns the logits of every head and the new running statistics.
    With ``training=False`` it normalizes by the running statistics and drops nothing. With ``dropping`` 0, a number or
    a scalar on the device, a training step drops nothing either.

    ``parameters`` is a tree of numpy arrays; ``statistics`` has the running mean and variance of each batch norm by its
    name; ``key`` is used only if ``random``. ``canonical`` returns arrays by name in canonical layout, and
    ``native`` the parameters of such arrays; None for a user's own network.
    """

    parameters: Any
    statistics: dict[str, tuple[np.ndarray, np.ndarray]]
    apply: Callable[..., tuple[tuple[jax.Array, ...], NamedArrays]]
    loss_weights: tuple[float, ...]
    canonical: Callable[[Any], dict[str, np.ndarray]]
    random: bool = False
    native: Callable[[Mapping[str, np.ndarray]], Any] | None = None

    @property
    def parameter_count(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.parameters))


def build(config: Config, seed: int, dropout: bool = True) -> JaxNetwork:
    """Build a network in host memory, with the same initial weights on every rank."""
    if models.resolve(config.model) is None:
        return build_foreign(config, seed)
    graph = models.build(config.model, config.image_size, config.classes)
    return from_graph(graph, initial_weights(graph, seed), config.layout, config.precision, dropout)


class _GraphFunction:
    """The forward pass of a graph as a pure function; see JaxNetwork."""

    def __init__(self, graph: Graph, layout: str, dropout: bool) -> None:
        self.layers = [layer for layer in graph.layers if layer.kind != "dropout" or dropout]
        # A layer that is left out stands for its input.
        self._skipped = {layer.name: layer.inputs[0] for layer in graph.layers if layer not in self.layers}
        self._heads = [head.layer for head in graph.heads]
        self._layout = layout

    def __call__(
        self, parameters: Any, statistics: Any, images: jax.Array, key: Any, training: bool = True, dropping: Any = 1.0
    ) -> tuple[tuple[jax.Array, ...], Any]:
        layout = self._layout
        values: dict[str, jax.Array] = {}
        new_statistics = {}
        for number, layer in enumerate(self.layers):
            inputs = [values[self._find_source(name)] for name in layer.inputs] or [images]
            own = {role: parameters.get(f"{layer.name}.{role}") for role in ("weight", "bias", "scale", "shift")}
            if layer.kind == "batch_norm" and not training:
                value = _batch_norm_predicting(layer, layout, inputs[0], own, statistics[layer.name])
            elif layer.kind == "batch_norm":
                running = statistics[layer.name]
                value, new_statistics[layer.name] = _batch_norm(layer, layout, inputs[0], own, running)
            elif layer.kind == "dropout" and not training:
                value = inputs[0]
            elif layer.kind == "dropout":
                value = dropout(layer, inputs[0], jax.random.fold_in(key, number), dropping)
            else:
                value = _APPLY[layer.kind](layer, layout, inputs, own)
            values[layer.name] = value
        return tuple(values[self._find_source(name)] for name in self._heads), new_statistics

    def _find_source(self, name: str) -> str:
        while name in self._skipped:
            name = self._skipped[name]
        return name


def from_graph(
    graph: Graph, weights: dict[str, np.ndarray], layout: str, precision: str, dropout: bool = True
) -> JaxNetwork:
    dtype = choose_storage_dtype(precision)
    axes = _NATIVE_AXES[layout]
    function = _GraphFunction(graph, layout, dropout)

    def canonical(parameters: Any) -> dict[str, np.ndarray]:
        return {name: _to_canonical(np.asarray(parameters[name]), axes) for name in weights}

    def native(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: _to_native(values.astype(dtype, copy=False), axes) for name, values in weights.items()}

    return JaxNetwork(
        native(weights),
        {layer.name: _make_initial_statistics(layer, dtype) for layer in function.layers if layer.kind == "batch_norm"},
        function,
        tuple(head.loss_weight for head in graph.heads),
        canonical,
        random=any(layer.kind == "dropout" for layer in function.layers),
        native=native,
    )


def _make_initial_statistics(layer: Layer, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(layer.shape[0], dtype), np.ones(layer.shape[0], dtype)


def _to_native(values: np.ndarray, axes: dict[int, tuple[int, ...]]) -> np.ndarray:
    return np.ascontiguousarray(values.transpose(axes.get(values.ndim)) if values.ndim in axes else values)


def _to_canonical(values: np.ndarray, axes: dict[int, tuple[int, ...]]) -> np.ndarray:
    """Return a view: who needs the values in their order copies them, in several threads if there are many."""
    return values.transpose(np.argsort(axes[values.ndim])) if values.ndim in axes else values


def build_foreign(config: Config, seed: int) -> JaxNetwork:
    """Call ``package.module:function``, which returns a tree of arrays and a function ``apply(parameters, images)``.

    ``apply`` returns logits or a tuple of them. Images have the layout and the precision of the config.
    """
    np.random.seed(seed)  # the user's function may draw weights with it
    pair = call_user_function(config, layout=config.layout)
    if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
        raise TypeError(f"{config.model} returned {type(pair).__name__}, not a pair (parameters, apply)")
    parameters, function = pair
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        if not jax.numpy.issubdtype(getattr(leaf, "dtype", np.int64), np.floating):
            raise TypeError(f"{config.model}: parameter {jax.tree_util.keystr(path)} is not an array of floats")
    dtype = choose_storage_dtype(config.precision)
    return JaxNetwork(
        jax.tree.map(lambda leaf: np.array(leaf, dtype), parameters),
        {},
        partial(_apply_foreign, function),
        LOSS_WEIGHTS,
        _name_by_path,
    )


def _apply_foreign(
    function: Callable, parameters: Any, statistics: Any, images: jax.Array, key: Any, **mode: Any
) -> Any:
    """Call a user's function, which is the same in every mode: in training and in prediction."""
    outputs = function(jax.tree.map(lambda leaf: leaf.astype(images.dtype), parameters), images)
    return tuple(list_heads(outputs)), statistics


def _name_by_path(parameters: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def choose_storage_dtype(precision: str) -> Any:
    """Return the type of weights, momentum, statistics and losses."""
    return np.dtype(np.float64 if precision == "fp64" else np.float32)


def choose_compute_dtype(precision: str) -> Any:
    """Return the type of images and activations."""
    return jax.numpy.bfloat16 if precision == "bf16" else choose_storage_dtype(precision)


def _convolution(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    images, options = inputs[0], layer.options
    result = lax.conv_general_dilated(
        images,
        own["weight"].astype(images.dtype),
        window_strides=options["stride"],
        padding=[(edge, edge) for edge in options["padding"]],
        dimension_numbers=_CONVOLUTION[layout],
    )
    if own["bias"] is None:
        return result
    return result + _align_with_channels(own["bias"].astype(images.dtype), layout)


def _dense(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    values = inputs[0]
    result = values @ own["weight"].astype(values.dtype)
    return result if own["bias"] is None else result + own["bias"].astype(values.dtype)


def _batch_norm(
    layer: Layer, layout: str, images: jax.Array, own: NamedArrays, running: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Normalize by the batch's own statistics; return also the new running statistics. Never in fewer than 32 bits.

    Mean and mean square take one pass over the images, which is the cost of a batch norm.
    """
    wide = images.astype(own["scale"].dtype)
    axes = (0, *_SPATIAL[layout])
    mean = wide.mean(axes)
    variance = jnp.maximum(jnp.square(wide).mean(axes) - jnp.square(mean), 0)
    result = _normalize(layer, layout, wide, own, mean, variance).astype(images.dtype)
    count = images.size // images.shape[_CHANNEL[layout]]
    fresh = (mean, variance * (count / max(count - 1, 1)))
    return result, tuple(old + BATCH_NORM_MOMENTUM * (lax.stop_gradient(new) - old) for old, new in zip(running, fresh))


def _batch_norm_predicting(
    layer: Layer, layout: str, images: jax.Array, own: NamedArrays, running: tuple[jax.Array, jax.Array]
) -> jax.Array:
    return _normalize(layer, layout, images.astype(own["scale"].dtype), own, *running).astype(images.dtype)


def _normalize(layer: Layer, layout: str, wide: jax.Array, own: NamedArrays, mean: Any, variance: Any) -> jax.Array:
    """Normalize with one multiplication and one addition per value.

    Subtracting the mean first makes a ResNet-50's step on an H200 4 % longer.
    """
    factor = own["scale"] * lax.rsqrt(variance + layer.options["eps"])
    offset = own["shift"] - mean * factor
    return wide * _align_with_channels(factor, layout) + _align_with_channels(offset, layout)


def _max_pool(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    return lax.reduce_window(inputs[0], -jnp.inf, lax.max, *_expand_window(layer, layout))


def _average_pool(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    images, options = inputs[0], layer.options
    total = lax.reduce_window(images, 0.0, lax.add, *_expand_window(layer, layout))
    if options["count_padding"] or not any(options["padding"]):
        return total / np.prod(options["kernel"]).item()
    rows, columns = (
        count_inside(images.shape[axis], *(options[name][number] for name in ("kernel", "stride", "padding")))
        for number, axis in enumerate(_SPATIAL[layout])
    )
    count = np.outer(rows, columns)
    return total / np.expand_dims(count, tuple(set(range(4)) - set(_SPATIAL[layout]))).astype(images.dtype)


def _expand_window(layer: Layer, layout: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return kernel, strides and padding over all four axes, as reduce_window wants them."""
    kernel, stride, padding = [1] * 4, [1] * 4, [(0, 0)] * 4
    for number, axis in enumerate(_SPATIAL[layout]):
        kernel[axis] = layer.options["kernel"][number]
        stride[axis] = layer.options["stride"][number]
        padding[axis] = (layer.options["padding"][number],) * 2
    return tuple(kernel), tuple(stride), tuple(padding)


def _flatten(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    """Flatten with the channel slowest in both layouts, so that the dense weights behind it are the canonical ones."""
    images = inputs[0]
    if layout == "nhwc" and images.ndim == 4:
        images = images.transpose(0, 3, 1, 2)
    return images.reshape(images.shape[0], -1)


def _concat(layer: Layer, layout: str, inputs: list[jax.Array], own: NamedArrays) -> jax.Array:
    return lax.concatenate(inputs, _CHANNEL[layout] if inputs[0].ndim == 4 else 1)


def dropout(layer: Layer, values: jax.Array, key: jax.Array, dropping: Any) -> jax.Array:
    """Drop at the layer's rate where ``dropping`` is 1, and nothing where it is 0."""
    keep = jnp.asarray(1.0 - layer.options["rate"] * dropping, np.float32)
    kept = jax.random.bernoulli(key, keep, values.shape)
    return jnp.where(kept, values / keep.astype(values.dtype), jnp.zeros_like(values))


def _align_with_channels(values: jax.Array, layout: str) -> jax.Array:
    return values[:, None, None] if layout == "nchw" else values


_APPLY = {
    "input": lambda layer, layout, inputs, own: inputs[0],
    "conv": _convolution,
    "relu": lambda layer, layout, inputs, own: jax.nn.relu(inputs[0]),
    "max_pool": _max_pool,
    "avg_pool": _average_pool,
    "global_avg_pool": lambda layer, layout, inputs, own: inputs[0].mean(_SPATIAL[layout]),
    "flatten": _flatten,
    "dense": _dense,
    "concat": _concat,
    "add": lambda layer, layout, inputs, own: inputs[0] + inputs[1],
}


def trace(network: JaxNetwork, config: Config) -> Any:
    """Return the operations of a forward pass of one image, without computing anything."""
    channels, *sides = models.find_samples(config.model).shape(config)
    shape = (1, *sides, channels) if config.layout == "nhwc" else (1, channels, *sides)
    images = jax.ShapeDtypeStruct(shape, choose_compute_dtype(config.precision))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.make_jaxpr(network.apply)(network.parameters, network.statistics, images, key)


def count_macs(network: JaxNetwork, config: Config) -> int:
    return sum(_count_operation_macs(operation) for operation in _iterate_operations(trace(network, config).jaxpr))


def _iterate_operations(program: Any) -> Iterator[Any]:
    for operation in program.eqns:
        yield operation
        for value in operation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)  # closed ones hold the program inside
                if hasattr(inner, "eqns"):
                    yield from _iterate_operations(inner)


def _count_operation_macs(operation: Any) -> int:
    outputs = prod(operation.outvars[0].aval.shape) if operation.outvars else 0
    if operation.primitive.name == "conv_general_dilated":
        weights = operation.invars[1].aval.shape
        filters = weights[operation.params["dimension_numbers"].rhs_spec[0]]
        return outputs * prod(weights) // filters
    if operation.primitive.name == "dot_general":
        (summed, _), _ = operation.params["dimension_numbers"]
        return outputs * prod(operation.invars[0].aval.shape[axis] for axis in summed)
    return 0
