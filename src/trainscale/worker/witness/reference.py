"""A network in numpy, written from the graph alone: its layers forward and backward, its
loss, and the update of its parameters (worker/models/graph.py has the layers).

It shares no code with the adapters, so no mistake is in both. Nothing is dropped.

An arithmetic is ``fp64``, or emulates a precision in which trials are timed: in 32-bit arrays,
with the operands of convolutions and matrix products rounded to the bits of the precision, and
for the 16-bit formats the results of all layers too. Images are (samples, rows, columns,
channels) here; parameters are in the canonical layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Callable

from ..models import Graph, Layer
from ..type_aliases import NamedArrays

Weights = NamedArrays  # by canonical name

_MANTISSA_BITS = {"tf32": 10, "bf16": 7, "fp16": 10}
_ROUNDS_RESULTS = ("bf16", "fp16")
_FLOAT32_BITS = 23


class Arrays:
    """numpy's arrays."""

    block_values = 1 << 21  # of a convolution's columns that are made at a time

    def __init__(self, arithmetic: str = "fp64", device: str = "") -> None:
        import numpy

        self.arithmetic, self.device = arithmetic, device
        self.item_bytes = 8 if arithmetic == "fp64" else 4
        self.module: Any = numpy
        self._dropped_bits = _FLOAT32_BITS - _MANTISSA_BITS.get(arithmetic, _FLOAT32_BITS)
        self._rounds_results = arithmetic in _ROUNDS_RESULTS
        self.dtype: Any = getattr(numpy, f"float{8 * self.item_bytes}")

    def make_array(self, values: Any) -> Any:
        return self.module.array(values, dtype=self.dtype)

    def to_numpy(self, values: Any) -> Any:
        return values

    def fill(self, shape: tuple[int, ...], value: float = 0.0) -> Any:
        return self.module.full(shape, value, dtype=self.dtype)

    def contiguous(self, values: Any) -> Any:
        return self.module.ascontiguousarray(values)

    def sum_rows(self, matrix: Any) -> Any:
        """Sum over the first axis, in float64: frameworks sum in blocks or trees."""
        return matrix.sum(axis=0, dtype=self.module.float64).astype(self.dtype, copy=False)

    def cut_windows(self, images: Any, kernel: tuple[int, int], stride: tuple[int, int]) -> Any:
        """Return what the kernel covers: (sample, row, column, channel, kernel row, kernel column)."""
        windows = self.module.lib.stride_tricks.sliding_window_view(images, kernel, (1, 2))
        return windows[:, :: stride[0], :: stride[1]]

    def round_operand(self, values: Any) -> Any:
        """Return what a convolution or a matrix product reads."""
        return self._round(values) if self._dropped_bits else values

    def round_result(self, values: Any) -> Any:
        """Return what a layer writes."""
        return self._round(values) if self._rounds_results else values

    def _round(self, values: Any) -> Any:
        """Round to the nearest number that has fewer bits; of two, to the even one."""
        dropped = self._dropped_bits
        bits = self.contiguous(values).view(self.module.int32)
        to_even = (bits >> dropped) & 1
        rounded = (bits + (to_even + ((1 << (dropped - 1)) - 1))) & -(1 << dropped)
        return rounded.view(self.dtype)


class TorchArrays(Arrays):
    """PyTorch's tensors, on a GPU, where float64 is fast."""

    block_values = 1 << 27

    def __init__(self, arithmetic: str = "fp64", device: str = "cuda:0") -> None:
        import torch

        super().__init__(arithmetic, device)
        self.module = torch
        self.dtype = getattr(torch, f"float{8 * self.item_bytes}")

    def count_free_bytes(self) -> int:
        """Return the free memory of the GPU; 0 if PyTorch does not see it."""
        cuda, index = self.module.cuda, int(self.device.partition(":")[2])
        return int(cuda.mem_get_info(index)[0]) if cuda.device_count() > index else 0

    def make_array(self, values: Any) -> Any:
        values = values.copy()  # it takes no reversed views
        return self.module.tensor(values, dtype=self.dtype, device=self.device)

    def to_numpy(self, values: Any) -> Any:
        return values.cpu().numpy()

    def fill(self, shape: tuple[int, ...], value: float = 0.0) -> Any:
        return self.module.full(shape, value, dtype=self.dtype, device=self.device)

    def contiguous(self, values: Any) -> Any:
        return values.contiguous()

    def sum_rows(self, matrix: Any) -> Any:
        return matrix.sum(0, dtype=self.module.float64).to(self.dtype)

    def cut_windows(self, images: Any, kernel: tuple[int, int], stride: tuple[int, int]) -> Any:
        return images.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1])


@dataclass(frozen=True)
class Node:
    """A layer in one pass. ``weights`` are its parameters by role."""

    layer: Layer
    weights: Mapping[str, Any]
    arrays: Arrays
    needs_input_gradient: bool = True

    def pad(self, images: Any, value: float = 0.0) -> Any:
        down, across = self.layer.options["padding"]
        if not down and not across:
            return self.arrays.contiguous(images)
        count, height, width, channels = images.shape
        result = self.arrays.fill((count, height + 2 * down, width + 2 * across, channels), value)
        self.crop(result)[:] = images
        return result

    def crop(self, images: Any) -> Any:
        """Return the images without their padding."""
        down, across = self.layer.options["padding"]
        height, width = images.shape[1:3]
        return images[:, down : height - down, across : width - across]

    def iterate_below_kernel(self, images: Any) -> Iterator[Any]:
        """Yield, for each position in the kernel, the padded images' values below it."""
        options, places = self.layer.options, self.layer.shape[1:]
        for position in product(*map(range, options["kernel"])):
            rows, columns = (
                slice(start, start + step * (count - 1) + 1, step)
                for start, step, count in zip(position, options["stride"], places)
            )
            yield images[:, rows, columns]


# ---- the layers: each returns its output, and a function from the gradient of the output
# ---- to those of the inputs and of the parameters by role

Gradients = tuple[tuple[Any, ...], NamedArrays]
Backward = Callable[[Any], Gradients]
Result = tuple[Any, Backward]


def conv(node: Node, images: Any) -> Result:
    """Compute one matrix product for a few images at a time. Its columns are made twice."""
    arrays, options = node.arrays, node.layer.options
    filters, *places = node.layer.shape
    images = arrays.round_operand(images)
    matrix = arrays.round_operand(node.weights["weight"]).reshape(filters, -1)
    size = max(1, arrays.block_values // (prod(places) * matrix.shape[1]))
    parts = [slice(first, first + size) for first in range(0, len(images), size)]

    def make_columns(part: slice) -> Any:
        padded = node.pad(images[part])
        windows = arrays.cut_windows(padded, options["kernel"], options["stride"])
        return windows.reshape(-1, matrix.shape[1])

    def backward(gradient: Any) -> Gradients:
        gradients = {}
        if "bias" in node.weights:
            gradients["bias"] = arrays.sum_rows(gradient.reshape(-1, filters))
        gradient = arrays.contiguous(arrays.round_operand(gradient))
        weight = arrays.fill(tuple(matrix.shape))
        inputs = arrays.fill(tuple(images.shape)) if node.needs_input_gradient else None
        for part in parts:
            rows = gradient[part].reshape(-1, filters)
            weight += rows.T @ make_columns(part)
            if inputs is not None:
                padded = node.pad(arrays.fill(tuple(images[part].shape)))
                columns = (rows @ matrix).reshape(-1, *places, images.shape[3], prod(options["kernel"]))
                # Add every value of the columns to the place that it was copied from.
                for number, target in enumerate(node.iterate_below_kernel(padded)):
                    target += columns[..., number]
                inputs[part] = node.crop(padded)
        gradients["weight"] = weight.reshape(node.weights["weight"].shape)
        return (inputs,), gradients

    result = arrays.fill((len(images), *places, filters))
    for part in parts:
        result[part].reshape(-1, filters)[:] = make_columns(part) @ matrix.T
    if "bias" in node.weights:
        result += node.weights["bias"]
    return result, backward


def dense(node: Node, inputs: Any) -> Result:
    arrays, weights = node.arrays, node.weights
    inputs, weight = arrays.round_operand(inputs), arrays.round_operand(weights["weight"])

    def backward(gradient: Any) -> Gradients:
        gradients = {"bias": arrays.sum_rows(gradient)} if "bias" in weights else {}
        gradient = arrays.round_operand(gradient)
        gradients["weight"] = gradient.T @ inputs
        return (gradient @ weight,), gradients

    result = inputs @ weight.T
    return result + weights["bias"] if "bias" in weights else result, backward


def batch_norm(node: Node, images: Any) -> Result:
    """Normalize by the batch's own mean and biased variance."""
    arrays, shape, scale = node.arrays, images.shape, node.weights["scale"]
    rows = images.reshape(-1, node.layer.shape[0])
    normalized = rows - arrays.sum_rows(rows) / len(rows)
    variance = arrays.sum_rows(normalized * normalized) / len(rows)
    inverse = (variance + node.layer.options["eps"]) ** -0.5
    normalized *= inverse

    def backward(gradient: Any) -> Gradients:
        rows = gradient.reshape(normalized.shape)
        gradients = {"scale": arrays.sum_rows(rows * normalized), "shift": arrays.sum_rows(rows)}
        inputs = normalized * (-gradients["scale"] / len(rows))
        inputs -= gradients["shift"] / len(rows)
        inputs += rows
        inputs *= inverse * scale
        return (inputs.reshape(shape),), gradients

    result = normalized * scale
    result += node.weights["shift"]
    return result.reshape(shape), backward


def relu(node: Node, values: Any) -> Result:
    result = values.clip(min=0)
    return result, lambda gradient: ((gradient * (result > 0),), {})


def max_pool(node: Node, images: Any) -> Result:
    """The gradient goes to the first maximum of a window, by rows."""
    arrays = node.arrays
    result: Any = None
    for values in node.iterate_below_kernel(node.pad(images, -float("inf"))):
        result = values * 1 if result is None else arrays.module.maximum(result, values)

    def backward(gradient: Any) -> Gradients:
        padded = node.pad(images, -float("inf"))
        targets = arrays.fill(tuple(padded.shape))
        free = result == result
        pairs = zip(node.iterate_below_kernel(padded), node.iterate_below_kernel(targets))
        for values, target in pairs:
            hits = free & (values == result)
            free &= ~hits
            target += gradient * hits
        return (node.crop(targets),), {}

    return result, backward


def avg_pool(node: Node, images: Any) -> Result:
    arrays, options = node.arrays, node.layer.options
    padded = node.pad(images)
    shape, counts = tuple(padded.shape), prod(options["kernel"])
    if not options["count_padding"]:
        ones = node.pad(arrays.fill((1, *images.shape[1:3], 1), 1.0))
        counts = sum(node.iterate_below_kernel(ones))

    def backward(gradient: Any) -> Gradients:
        targets, shares = arrays.fill(shape), gradient / counts
        for target in node.iterate_below_kernel(targets):
            target += shares
        return (node.crop(targets),), {}

    return sum(node.iterate_below_kernel(padded)) / counts, backward


def global_avg_pool(node: Node, images: Any) -> Result:
    shape = tuple(images.shape)

    def backward(gradient: Any) -> Gradients:
        share = gradient[:, None, None] / (shape[1] * shape[2])
        return (node.arrays.fill(shape) + share,), {}

    return images.mean(axis=(1, 2)), backward


def flatten(node: Node, images: Any) -> Result:
    """Put the channel first, as in the canonical order."""
    arrays, (count, height, width, channels) = node.arrays, images.shape

    def backward(gradient: Any) -> Gradients:
        maps = gradient.reshape(count, channels, height, width)
        return (arrays.contiguous(arrays.module.moveaxis(maps, 1, -1)),), {}

    return arrays.module.moveaxis(images, -1, 1).reshape(count, -1), backward


def dropout(node: Node, values: Any) -> Result:
    """Drop nothing: random masks differ between frameworks."""
    return values, lambda gradient: ((gradient,), {})


def concat(node: Node, *inputs: Any) -> Result:
    result = node.arrays.fill((*inputs[0].shape[:-1], node.layer.shape[0]))
    parts, first = [], 0
    for values in inputs:
        parts.append(slice(first, first + values.shape[-1]))
        result[..., parts[-1]] = values
        first += values.shape[-1]
    contiguous = node.arrays.contiguous
    return result, lambda gradient: (tuple(contiguous(gradient[..., part]) for part in parts), {})


def add(node: Node, first: Any, second: Any) -> Result:
    return first + second, lambda gradient: ((gradient, gradient), {})


_POOLS = (max_pool, avg_pool, global_avg_pool)
_FUNCTIONS = (conv, dense, batch_norm, relu, *_POOLS, flatten, dropout, concat, add)
OPERATIONS: dict[str, Callable[..., Result]] = {each.__name__: each for each in _FUNCTIONS}


class ReferenceNetwork:
    def __init__(self, graph: Graph, arrays: Arrays) -> None:
        self._graph, self._arrays = graph, arrays
        self._names: dict[str, dict[str, str]] = {}  # of the parameters of a layer, by role
        for parameter in graph.parameters():
            self._names.setdefault(parameter.layer, {})[parameter.role] = parameter.name
        self._with_gradient = set(self._names)  # layers whose output depends on a parameter
        for layer in graph.layers:
            if self._with_gradient.intersection(layer.inputs):
                self._with_gradient.add(layer.name)

    def compute_gradients(self, weights: Weights, samples: Any, labels: Any) -> tuple[float, Weights]:
        """Return the loss and the gradient of every parameter. Samples have channels first."""
        arrays = self._arrays
        images = arrays.make_array(samples)
        if images.ndim == 4:
            images = arrays.contiguous(arrays.module.moveaxis(images, 1, -1))
        first, *layers = self._graph.layers
        heads = [head.layer for head in self._graph.heads]
        # How often each output is still to be used.
        uses = Counter([*heads, *(name for layer in layers for name in layer.inputs)])
        outputs, passes = {first.name: images}, {}
        for layer in layers:
            own = {role: weights[name] for role, name in self._names.get(layer.name, {}).items()}
            needs_gradient = not self._with_gradient.isdisjoint(layer.inputs)
            node = Node(layer, own, arrays, needs_gradient)
            operands = (outputs[name] for name in layer.inputs)
            result, passes[layer.name] = OPERATIONS[layer.kind](node, *operands)
            outputs[layer.name] = result if layer.name in heads else arrays.round_result(result)
            for name in layer.inputs:
                uses[name] -= 1
                if not uses[name]:
                    del outputs[name]

        loss, pending = 0.0, {}
        chosen = list(range(len(labels))), [int(label) for label in labels]
        for head in self._graph.heads:
            # The cross-entropy, a mean over the samples, and its gradient.
            logits = outputs[head.layer]
            shifted = logits - arrays.module.amax(logits, axis=1, keepdims=True)
            exponentials = arrays.module.exp(shifted)
            sums = exponentials.sum(axis=1)
            losses = arrays.module.log(sums) - shifted[chosen]
            loss += head.loss_weight * float(losses.sum() / len(labels))
            gradient = exponentials / sums[:, None]
            gradient[chosen] -= 1
            pending[head.layer] = gradient / len(labels) * head.loss_weight
        gradients: Weights = {}
        for layer in reversed(self._graph.layers):
            if layer.name not in pending or layer.name not in self._with_gradient:
                continue
            inputs, own = passes.pop(layer.name)(pending.pop(layer.name))
            for role, values in own.items():
                gradients[self._names[layer.name][role]] = arrays.round_result(values)
            for name, values in zip(layer.inputs, inputs):
                if name in self._with_gradient:
                    values = arrays.round_result(values)
                    pending[name] = pending[name] + values if name in pending else values
        return loss, gradients


class ReferenceOptimizer:
    """The weights, and stochastic gradient descent with momentum and weight decay."""

    def __init__(self, weights: Mapping[str, Any], momentum: float, weight_decay: float, arrays: Arrays) -> None:
        self.weights = {name: arrays.make_array(values) for name, values in weights.items()}
        self._velocities = {name: weight * 0 for name, weight in self.weights.items()}
        self._momentum, self._weight_decay = momentum, weight_decay

    def update(self, gradients: Mapping[str, Any], rate: float) -> None:
        """Change the weights in place."""
        for name, weight in self.weights.items():
            velocity = self._velocities[name]
            velocity *= self._momentum
            velocity += gradients[name]
            velocity += weight * self._weight_decay
            weight -= velocity * rate


_COPIES = 6  # of the parameters: weights, velocities, gradients, sums, temporary ones
_LARGEST_LAYERS = 4  # gradients and temporary arrays of the largest layer
_INITIAL_BYTES = 4  # of an initial weight


def estimate_needed_bytes(graph: Graph, batch: int, arrays: Arrays) -> int:
    """Estimate the memory that steps of one rank at a time need."""
    kept, columns = 0, 0
    for layer in graph.layers:
        # Dropout keeps nothing. A ReLU keeps its output instead of its input.
        kept += 0 if layer.kind in ("dropout", "relu") else prod(layer.shape)
        if layer.kind == "conv":  # the largest block of columns
            rows, width = layer.options["kernel"]
            image = prod(layer.shape[1:]) * int(rows * width) * graph.input_shapes(layer)[0][0]
            columns = max(columns, image, min(batch * image, arrays.block_values))
    largest = max(prod(layer.shape) for layer in graph.layers)
    values = batch * (kept + _LARGEST_LAYERS * largest) + 2 * columns + _COPIES * graph.parameter_count
    return values * arrays.item_bytes + graph.parameter_count * _INITIAL_BYTES
