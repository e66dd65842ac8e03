"""A network in numpy, written from the graph alone: its loss, the gradients of its parameters, and their update.

It shares no code with the frameworks' adapters, so no mistake is in both. Batch norm uses the statistics of the batch
that it is given. Nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..models import Graph, Layer
from ..type_aliases import NamedArrays
from .layers import OPERATIONS, Arrays, Operation, Relu

Weights = NamedArrays  # by canonical name

# These make a new array, which their backward pass does not read.
_OVERWRITABLE = ("conv", "batch_norm", "dense", "concat", "add")

_COPIES = 6  # of the parameters: weights, velocities, a gradient, the sum of gradients, and what a step computes
_LARGEST_LAYERS = 4  # gradients and temporary arrays of the layer with the most values
_INITIAL_BYTES = 4  # of an initial weight


class ReferenceNetwork:
    """Computes losses and gradients. It keeps nothing between two calls."""

    def __init__(self, graph: Graph, arrays: Arrays) -> None:
        self._graph, self._arrays = graph, arrays
        self._uses = count_uses(graph)
        self._with_gradient = _find_layers_with_gradient(graph)
        self._names: dict[str, dict[str, str]] = {}  # of the parameters of a layer, by role
        for parameter in graph.parameters():
            self._names.setdefault(parameter.layer, {})[parameter.role] = parameter.name

    def compute_gradients(self, weights: Mapping[str, Any], samples: Any, labels: Any) -> tuple[float, Weights]:
        """Return the loss and the gradient of every parameter. Samples are numpy arrays with channels first."""
        images = self._arrays.make_array(samples)
        if images.ndim == 4:
            images = self._arrays.contiguous(self._arrays.module.moveaxis(images, 1, -1))
        operations, logits = self._forward(weights, images)
        loss, pending = 0.0, {}
        for head in self._graph.heads:
            head_loss, gradient = self._cross_entropy(logits[head.layer], self._arrays.place_labels(labels))
            loss += head.loss_weight * head_loss
            pending[head.layer] = gradient * head.loss_weight
        return loss, self._backward(operations, pending)

    def _forward(self, weights: Mapping[str, Any], images: Any) -> tuple[dict[str, Operation], NamedArrays]:
        """Return the operations, which keep what they need, and the outputs of the heads."""
        first, *layers = self._graph.layers
        outputs, uses = {first.name: images}, dict(self._uses)
        operations = {}
        for layer in layers:
            operation = self._make(layer, weights)
            result = operation.forward(*(outputs[name] for name in layer.inputs))
            outputs[layer.name] = result if layer.name in self._head_names else self._arrays.round_result(result)
            operations[layer.name] = operation
            for name in layer.inputs:
                uses[name] -= 1
                if not uses[name]:
                    del outputs[name]
        return operations, {name: outputs[name] for name in self._head_names}

    def _make(self, layer: Layer, weights: Mapping[str, Any]) -> Operation:
        own = {role: weights[name] for role, name in self._names.get(layer.name, {}).items()}
        operation = OPERATIONS[layer.kind](layer, own, self._arrays)
        operation.needs_input_gradient = any(name in self._with_gradient for name in layer.inputs)
        if isinstance(operation, Relu):
            operation.in_place = overwrites_input(self._graph, layer, self._uses)
        return operation

    def _backward(self, operations: dict[str, Operation], pending: NamedArrays) -> Weights:
        gradients: Weights = {}
        for layer in reversed(self._graph.layers):
            if layer.name not in pending or layer.name not in self._with_gradient:
                continue
            operation = operations.pop(layer.name)
            inputs = operation.backward(pending.pop(layer.name))
            for role, values in operation.gradients.items():
                gradients[self._names[layer.name][role]] = self._arrays.round_result(values)
            for name, values in zip(layer.inputs, inputs):
                if name in self._with_gradient:
                    values = self._arrays.round_result(values)
                    pending[name] = pending[name] + values if name in pending else values
        return gradients

    def _cross_entropy(self, logits: Any, labels: Any) -> tuple[float, Any]:
        """Return the mean over the samples, and its gradient."""
        module, count = self._arrays.module, len(logits)
        shifted = logits - module.amax(logits, axis=1, keepdims=True)
        exponentials = module.exp(shifted)
        sums = exponentials.sum(axis=1)
        rows = self._arrays.place_labels(range(count))
        loss = (module.log(sums) - shifted[rows, labels]).sum() / count
        gradient = exponentials / sums[:, None]
        gradient[rows, labels] -= 1
        return float(loss), gradient / count

    @property
    def _head_names(self) -> tuple[str, ...]:
        return tuple(head.layer for head in self._graph.heads)


class ReferenceOptimizer:
    """The weights, and stochastic gradient descent with momentum and weight decay, as in every framework here."""

    def __init__(self, weights: Mapping[str, Any], momentum: float, weight_decay: float, arrays: Arrays) -> None:
        self.weights = {name: arrays.make_array(values) for name, values in weights.items()}
        self._velocities: Weights = {}
        self._momentum, self._weight_decay = momentum, weight_decay

    def update(self, gradients: Mapping[str, Any], rate: float) -> None:
        """Change the weights in place."""
        for name, weight in self.weights.items():
            step = weight * self._weight_decay
            step += gradients[name]
            if name in self._velocities:
                self._velocities[name] *= self._momentum
                self._velocities[name] += step
            else:
                self._velocities[name] = step
            weight -= self._velocities[name] * rate


def count_uses(graph: Graph) -> dict[str, int]:
    """Return how many layers read the output of each layer. A head's output is also read by the loss."""
    uses = {layer.name: 0 for layer in graph.layers}
    for layer in graph.layers:
        for name in layer.inputs:
            uses[name] += 1
    for head in graph.heads:
        uses[head.layer] += 1
    return uses


def overwrites_input(graph: Graph, layer: Layer, uses: Mapping[str, int]) -> bool:
    """Whether a ReLU may write its result over its input: nothing else needs the input."""
    source = layer.inputs[0]
    return uses[source] == 1 and graph.layer(source).kind in _OVERWRITABLE


def _find_layers_with_gradient(graph: Graph) -> set[str]:
    """Return the layers whose output depends on a parameter."""
    names = {parameter.layer for parameter in graph.parameters()}
    for layer in graph.layers:
        if any(name in names for name in layer.inputs):
            names.add(layer.name)
    return names


def estimate_needed_bytes(graph: Graph, batch: int, arrays: Arrays) -> int:
    """Estimate the memory that steps of one rank at a time need: the parameters, what the layers keep for the backward
    pass, and the columns of convolutions.
    """
    uses, kept, columns = count_uses(graph), 0, 0
    for layer in graph.layers:
        is_view = layer.kind == "dropout" or (layer.kind == "relu" and overwrites_input(graph, layer, uses))
        kept += 0 if is_view else prod(layer.shape)
        if layer.kind == "conv":  # the largest block of columns: of some images, or of one image that is large
            rows, width = layer.options["kernel"]
            image = prod(layer.shape[1:]) * int(rows * width) * graph.input_shapes(layer)[0][0]
            columns = max(columns, image, min(batch * image, arrays.block_values))
    largest = max(prod(layer.shape) for layer in graph.layers)
    values = batch * (kept + _LARGEST_LAYERS * largest) + 2 * columns + _COPIES * graph.parameter_count
    return values * arrays.item_bytes + graph.parameter_count * _INITIAL_BYTES
