"""Networks as pure functions of JAX: from the framework-neutral graph, or from a user's own function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ... import models
from ...config import Config
from ...models.graph import Graph, Layer
from ...models.weights import initial_weights
from ...type_aliases import NamedArrays
from ..user_networks import LOSS_WEIGHTS, call_user_function, list_heads
from . import layers

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
                value = layers.batch_norm_predicting(layer, layout, inputs[0], own, statistics[layer.name])
            elif layer.kind == "batch_norm":
                running = statistics[layer.name]
                value, new_statistics[layer.name] = layers.batch_norm(layer, layout, inputs[0], own, running)
            elif layer.kind == "dropout" and not training:
                value = inputs[0]
            elif layer.kind == "dropout":
                value = layers.dropout(layer, inputs[0], jax.random.fold_in(key, number), dropping)
            else:
                value = layers.APPLY[layer.kind](layer, layout, inputs, own)
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
