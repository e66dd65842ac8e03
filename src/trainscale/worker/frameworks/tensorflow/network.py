"""Networks as TensorFlow operations: from the framework-neutral graph, or from a user's own function.

A network is called with images, its parameters and the running statistics of its batch norms, and gives back the logits
of its heads and the new statistics. Where parameters live (a variable of this process, a mirrored one, a copy of what a
parameter server holds) is the engines' affair.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ... import models
from ...config import Config
from ...models.graph import Graph, Layer
from ...models.weights import initial_weights
from ..user_networks import LOSS_WEIGHTS, call_user_function, heads_of
from . import layers
from .layers import Style

_THROUGH = ("relu", "dropout")  # layers that do not care in which order a vector's elements are


class GraphNetwork:
    """The graph as plain tf.nn operations; its parameters by their canonical names, in TensorFlow's layout."""

    def __init__(self, graph: Graph, style: Style, seed: int) -> None:
        self.graph = graph
        self._seed = seed
        self.loss_weights = tuple(head.loss_weight for head in graph.heads)
        self._style = style
        self._flattened = {} if style.channels_first else _flattened_images(graph)

    def initial_parameters(self) -> dict[str, np.ndarray]:
        weights = initial_weights(self.graph, self._seed)
        return {name: self._native(name, values).astype(self._style.weight_dtype) for name, values in weights.items()}

    def initial_statistics(self) -> dict[str, np.ndarray]:
        dtype = self._style.weight_dtype
        found = {}
        for layer in self.graph.layers:
            if layer.kind == "batch_norm":
                found[f"{layer.name}.mean"] = np.zeros(layer.shape[0], dtype)
                found[f"{layer.name}.variance"] = np.ones(layer.shape[0], dtype)
        return found

    def variables(self) -> dict[str, tf.Variable]:
        return {name: tf.Variable(values) for name, values in self.initial_parameters().items()}

    def empty_variables(self, where: Callable[[dict[str, int]], dict[str, Any]]) -> dict[str, tf.Variable]:
        """For whoever fills them later: values in a graph that is sent around would make it large. ``where`` gives for
        the sizes of all variables the context in which each is made.
        """
        shapes = self._native_shapes()
        contexts = where({name: prod(shape) for name, shape in shapes.items()})
        found = {}
        for name, shape in shapes.items():
            with contexts[name]:
                found[name] = tf.Variable(tf.zeros(shape, self._style.weight_dtype), name=name.replace(".", "/"))
        return found

    def canonical(self, name: str, values: np.ndarray) -> np.ndarray:
        """TensorFlow's layout back into OIHW and (out, in)."""
        if values.ndim == 4:
            return np.ascontiguousarray(values.transpose(3, 2, 0, 1))
        if name in self._flattened:
            channels, height, width = self._flattened[name]
            images = values.reshape(height, width, channels, -1).transpose(3, 2, 0, 1)
            return np.ascontiguousarray(images.reshape(len(images), -1))
        return np.array(
            values.T, order="C"
        )  # always a copy: a small one could otherwise share memory with its variable

    def _native(self, name: str, values: np.ndarray) -> np.ndarray:
        if values.ndim == 4:
            return values.transpose(2, 3, 1, 0)
        if name in self._flattened:
            images = values.reshape(len(values), *self._flattened[name]).transpose(2, 3, 1, 0)
            return images.reshape(-1, len(values))
        return values.T

    def _native_shapes(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for parameter in self.graph.parameters():
            turned = len(parameter.shape) in (2, 4)
            found[parameter.name] = (*parameter.shape[2:], *parameter.shape[1::-1]) if turned else parameter.shape
        return found

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True
    ) -> tuple[list[tf.Tensor], dict]:
        style, values, renewed = dataclasses.replace(self._style, training=training), {}, {}
        for layer in self.graph.layers:
            inputs = [values[name] for name in layer.inputs]
            if layer.kind == "input":
                value = tf.cast(images, style.dtype)
            elif layer.kind == "batch_norm":
                scale, shift = (parameters[f"{layer.name}.{role}"] for role in ("scale", "shift"))
                names = f"{layer.name}.mean", f"{layer.name}.variance"
                before = [statistics[name] for name in names]
                value, *after = layers.batch_norm(inputs[0], scale, shift, *before, layer.options["eps"], style)
                renewed.update(zip(names, after))
            elif layer.kind in ("conv", "dense"):
                weight = tf.cast(parameters[f"{layer.name}.weight"], style.dtype)
                value = layers.WEIGHTED[layer.kind](inputs[0], weight, layer, style)
                if layer.options["bias"]:
                    value = layers.add_bias(value, parameters[f"{layer.name}.bias"], style)
            elif layer.kind == "flatten":
                value = layers.flatten(inputs[0], style, as_it_lies=self._weights_follow(layer))
            else:
                value = layers.PLAIN[layer.kind](inputs, layer, style)
            values[layer.name] = value
        return [tf.cast(values[head.layer], style.weight_dtype) for head in self.graph.heads], renewed

    def _weights_follow(self, layer: Layer) -> bool:
        dense = _only_dense_after(self.graph, layer)
        return dense is not None and all(f"{name}.weight" in self._flattened for name in dense)


def _flattened_images(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Dense weights that follow a flattened image, with its (C, H, W): channels-last images flatten in another order
    than the canonical one, and to permute the weights once is cheaper than to permute the images in every step.
    """
    found = {}
    for layer in graph.layers:
        if layer.kind == "flatten":
            for name in _only_dense_after(graph, layer) or ():
                found[f"{name}.weight"] = graph.input_shapes(layer)[0]
    return found


def _only_dense_after(graph: Graph, layer: Layer) -> list[str] | None:
    """The dense layers that read this one, through ReLU and dropout; None where anything else reads it."""
    if any(head.layer == layer.name for head in graph.heads):
        return None
    found: list[str] = []
    for reader in graph.layers:
        if layer.name not in reader.inputs:
            continue
        further = _only_dense_after(graph, reader) if reader.kind in _THROUGH else None
        if reader.kind == "dense":
            found.append(reader.name)
        elif further is None:
            return None
        else:
            found += further
    return found


class UserNetwork:
    """What a user's function returned: called with images in the config's layout, with ``trainable_variables``.

    In bf16 it is given bfloat16 images, and is expected to bring its weights to their type by itself. One that takes no
    ``training`` computes alike when it is trained and when it is used.
    """

    loss_weights = LOSS_WEIGHTS

    def __init__(self, config: Config, style: Style, seed: int) -> None:
        self._config, self._style, self._seed = config, style, seed
        self._module: Any = None

    def initial_statistics(self) -> dict[str, np.ndarray]:
        return {}  # whatever it keeps, it keeps itself

    def variables(self) -> dict[str, tf.Variable]:
        config, style = self._config, self._style
        tf.random.set_seed(self._seed)
        module = call_user_function(config)
        if not callable(module) or not hasattr(module, "trainable_variables"):
            kind = type(module).__name__
            raise TypeError(f"{config.model} returned {kind}: not callable, or without trainable_variables")
        self._module = module
        self._takes_training = "training" in inspect.signature(module.__call__).parameters
        if not module.trainable_variables:  # many are built by their first images
            self(tf.zeros(style.batch_shape(1, config), style.weight_dtype), {}, {})
        return {f"{number}:{variable.name}": variable for number, variable in enumerate(module.trainable_variables)}

    def empty_variables(self, where: Callable[[dict[str, int]], dict[str, Any]]) -> dict[str, tf.Variable]:
        """Not empty, and where TensorFlow places them."""
        return self.variables()

    def canonical(self, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def __call__(
        self, images: tf.Tensor, parameters: dict, statistics: dict, training: bool = True
    ) -> tuple[list[tf.Tensor], dict]:
        extra = {"training": training} if self._takes_training else {}
        outputs = self._module(tf.cast(images, self._style.dtype), **extra)
        return [tf.cast(head, self._style.weight_dtype) for head in heads_of(outputs)], {}


def build(config: Config, style: Style, seed: int) -> GraphNetwork | UserNetwork:
    if models.resolve(config.model) is None:
        return UserNetwork(config, style, seed)
    return GraphNetwork(models.build(config.model, config.image_size, config.classes), style, seed)


def count_right(heads: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    """How many images the first head labels right. ``==`` would compare objects where TensorFlow is not eager."""
    return tf.math.count_nonzero(tf.equal(tf.argmax(heads[0], axis=1), labels))


def criterion(heads: list[tf.Tensor], labels: tf.Tensor, loss_weights: tuple[float, ...]) -> tf.Tensor:
    losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=head) for head in heads]
    return tf.add_n([weight * tf.reduce_mean(loss) for weight, loss in zip(loss_weights, losses)])
