"""Networks as pure functions of JAX: from the framework-neutral graph, or from a user's own function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ... import models
from ...config import Config
from ...models.graph import Graph, Layer
from ...models.weights import initial_weights
from ..user_networks import LOSS_WEIGHTS, call_user_function, heads_of
from . import layers

# From the graph's OIHW and (out, in) to what a layer here multiplies with, by layout and number of axes.
_NATIVE_AXES = {"nhwc": {4: (2, 3, 1, 0), 2: (1, 0)}, "nchw": {2: (1, 0)}}


@dataclass(frozen=True)
class Network:
    """``apply(parameters, statistics, images, key)`` gives the logits of every head and the new running statistics;
    with ``training=False`` it normalises by the running ones, and drops nothing.

    ``parameters`` is a tree of numpy arrays, ``statistics`` the running mean and variance of each batch norm by its
    name; ``key`` is only looked at when ``random``. ``canonical`` gives arrays by name in canonical layout.
    """

    parameters: Any
    statistics: dict[str, tuple[np.ndarray, np.ndarray]]
    apply: Callable[..., tuple[tuple[jax.Array, ...], dict[str, Any]]]
    loss_weights: tuple[float, ...]
    canonical: Callable[[Any], dict[str, np.ndarray]]
    random: bool = False

    @property
    def parameter_count(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.parameters))


def build(config: Config, seed: int, dropout: bool = True) -> Network:
    """In host memory, with the same initial weights for every rank."""
    if models.resolve(config.model) is None:
        return build_foreign(config, seed)
    graph = models.build(config.model, config.image_size, config.classes)
    return from_graph(graph, initial_weights(graph, seed), config.layout, config.precision, dropout)


def from_graph(
    graph: Graph, weights: dict[str, np.ndarray], layout: str, precision: str, dropout: bool = True
) -> Network:
    dtype = storage_dtype(precision)
    axes = _NATIVE_AXES[layout]
    heads = [head.layer for head in graph.heads]
    kept = [layer for layer in graph.layers if layer.kind != "dropout" or dropout]
    renamed = {layer.name: layer.inputs[0] for layer in graph.layers if layer not in kept}

    def source(name: str) -> str:
        while name in renamed:
            name = renamed[name]
        return name

    def apply(
        parameters: Any, statistics: Any, images: jax.Array, key: Any, training: bool = True
    ) -> tuple[tuple[jax.Array, ...], Any]:
        values: dict[str, jax.Array] = {}
        updated = {}
        for number, layer in enumerate(kept):
            inputs = [values[source(name)] for name in layer.inputs] or [images]
            own = {role: parameters.get(f"{layer.name}.{role}") for role in ("weight", "bias", "scale", "shift")}
            if layer.kind == "batch_norm" and not training:
                values[layer.name] = layers.batch_norm_in_use(layer, layout, inputs[0], own, statistics[layer.name])
            elif layer.kind == "batch_norm":
                values[layer.name], updated[layer.name] = layers.batch_norm(
                    layer, layout, inputs[0], own, statistics[layer.name]
                )
            elif layer.kind == "dropout" and not training:
                values[layer.name] = inputs[0]
            elif layer.kind == "dropout":
                values[layer.name] = layers.dropout(layer, inputs[0], jax.random.fold_in(key, number))
            else:
                values[layer.name] = layers.APPLY[layer.kind](layer, layout, inputs, own)
        return tuple(values[source(name)] for name in heads), updated

    def canonical(parameters: Any) -> dict[str, np.ndarray]:
        return {name: _back(np.asarray(parameters[name]), axes) for name in weights}

    return Network(
        {name: _forth(values.astype(dtype, copy=False), axes) for name, values in weights.items()},
        {layer.name: _fresh_statistics(layer, dtype) for layer in kept if layer.kind == "batch_norm"},
        apply,
        tuple(head.loss_weight for head in graph.heads),
        canonical,
        random=any(layer.kind == "dropout" for layer in kept),
    )


def _fresh_statistics(layer: Layer, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(layer.shape[0], dtype), np.ones(layer.shape[0], dtype)


def _forth(values: np.ndarray, axes: dict[int, tuple[int, ...]]) -> np.ndarray:
    return np.ascontiguousarray(values.transpose(axes.get(values.ndim)) if values.ndim in axes else values)


def _back(values: np.ndarray, axes: dict[int, tuple[int, ...]]) -> np.ndarray:
    if values.ndim not in axes:
        return values
    return np.ascontiguousarray(values.transpose(np.argsort(axes[values.ndim])))


def build_foreign(config: Config, seed: int) -> Network:
    """``package.module:function``, which returns a tree of arrays and ``apply(parameters, images)`` for logits, or for
    a tuple of them. Images come in the layout and the precision of the config.
    """
    np.random.seed(seed)  # for who draws weights by it; JAX's own generators are seeded by their user
    given = call_user_function(config, layout=config.layout)
    if not (isinstance(given, tuple) and len(given) == 2 and callable(given[1])):
        raise TypeError(f"{config.model} returned {type(given).__name__}, not a pair (parameters, apply)")
    parameters, function = given
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
        if not jax.numpy.issubdtype(getattr(leaf, "dtype", np.int64), np.floating):
            raise TypeError(f"{config.model}: parameter {jax.tree_util.keystr(path)} is no array of floats")
    dtype = storage_dtype(config.precision)
    return Network(
        jax.tree.map(lambda leaf: np.array(leaf, dtype), parameters),
        {},
        partial(_apply_foreign, function),
        LOSS_WEIGHTS,
        _by_path,
    )


def _apply_foreign(
    function: Callable, parameters: Any, statistics: Any, images: jax.Array, key: Any, training: bool = True
) -> Any:
    """A user's function is the same in training and in use."""
    outputs = function(jax.tree.map(lambda leaf: leaf.astype(images.dtype), parameters), images)
    return tuple(heads_of(outputs)), statistics


def _by_path(parameters: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def storage_dtype(precision: str) -> Any:
    """Of weights, momentum, statistics and losses."""
    return np.dtype(np.float64 if precision == "fp64" else np.float32)


def compute_dtype(precision: str) -> Any:
    """Of images and of what flows through the network."""
    return jax.numpy.bfloat16 if precision == "bf16" else storage_dtype(precision)
