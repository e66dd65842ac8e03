"""Networks as TensorFlow operations: from the framework-neutral graph, or from a user's own function.

A network is called with images, its parameters and the running statistics of its batch norms. It returns the logits of
its heads and the new statistics. The engines decide where parameters are: in a variable of this process, in a mirrored
one, or in a copy of what a parameter server holds.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ... import models
from ...config import Config
from ...models.graph import Graph, Layer
from ...models.weights import initial_weights
from ..user_networks import LOSS_WEIGHTS, call_user_function, list_heads
from . import layers
from .layers import Style

_ORDER_FREE = ("relu", "dropout")  # layers for which the order of a vector's elements does not matter


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
                value, *after = layers.batch_norm(inputs[0], weights, running, layer.options["eps"], style)
                new_statistics.update(zip(names, after))
            elif layer.kind in ("conv", "dense"):
                weight = tf.cast(parameters[f"{layer.name}.weight"], style.dtype)
                value = layers.WEIGHTED[layer.kind](inputs[0], weight, layer, style)
                if layer.options["bias"]:
                    value = layers.add_bias(value, parameters[f"{layer.name}.bias"], style)
            elif layer.kind == "flatten":
                value = layers.flatten(inputs[0], style, weights_are_permuted=self._are_weights_permuted(layer))
            else:
                value = layers.PLAIN[layer.kind](inputs, layer, style)
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
