"""A network in numpy, written from the graph alone: its layers forward and backward, its
loss, the gradients of its parameters, and their update (worker/models/graph.py has the layers).

It shares no code with the frameworks' adapters, so no mistake is in both. Batch norm uses the
statistics of the batch that it is given. Nothing is dropped.

An arithmetic is ``fp64``, or emulates a precision in which trials are timed: in 32-bit arrays,
with the operands of convolutions and matrix products rounded to as many bits as the precision
has, and for the 16-bit formats the results of all layers too. Ranges of exponents are those of
32-bit numbers. Images are (samples, rows, columns, channels) here, because then the columns of
a convolution are copied in long pieces; parameters are in the canonical layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ..models import Graph, Layer
from ..type_aliases import NamedArrays

Weights = NamedArrays  # by canonical name

_MANTISSA_BITS = {"tf32": 10, "bf16": 7, "fp16": 10}
_ROUNDS_RESULTS = ("bf16", "fp16")
_FLOAT32_BITS = 23


class Arrays:
    """numpy's arrays."""

    block_values = 1 << 21  # of the columns of a convolution that are made at a time: 16 MiB in float64

    def __init__(self, arithmetic: str = "fp64") -> None:
        import numpy

        self.arithmetic = arithmetic
        self.item_bytes = 8 if arithmetic == "fp64" else 4
        self.module: Any = numpy
        self._dropped_bits = _FLOAT32_BITS - _MANTISSA_BITS.get(arithmetic, _FLOAT32_BITS)
        self._rounds_results = arithmetic in _ROUNDS_RESULTS
        self.dtype: Any = getattr(numpy, f"float{8 * self.item_bytes}")

    def make_like(self, arithmetic: str) -> Arrays:
        return Arrays(arithmetic)

    def make_array(self, values: Any) -> Any:
        return self.module.array(values, dtype=self.dtype)

    def place_labels(self, values: Any) -> Any:
        return values

    def to_numpy(self, values: Any) -> Any:
        return values

    def zeros(self, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        return self.module.full(shape, fill, dtype=self.dtype)

    def contiguous(self, values: Any) -> Any:
        return self.module.ascontiguousarray(values)

    def sum_rows(self, matrix: Any) -> Any:
        """Sum over the first axis, in float64: frameworks sum in blocks or trees."""
        return matrix.sum(axis=0, dtype=self.module.float64).astype(self.dtype, copy=False)

    def cut_windows(
        self, images: Any, kernel: tuple[int, int], stride: tuple[int, int], places: tuple[int, int]
    ) -> Any:
        """Return a matrix with a row for each place of the kernel and in it the values below the
        kernel, by rows, columns, channels. The images are contiguous.
        """
        count, height, width, channels = images.shape
        shape = (count, *places, kernel[0], kernel[1] * channels)
        line = width * channels
        steps = (height * line, stride[0] * line, stride[1] * channels, line, 1)
        return self.view_strided(images, shape, steps).reshape(count * places[0] * places[1], -1)

    def view_strided(self, values: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        strides = tuple(step * values.itemsize for step in steps)
        return self.module.lib.stride_tricks.as_strided(values, shape, strides, writeable=False)

    def round_operand(self, values: Any) -> Any:
        """Return what a convolution or a matrix product reads of these values."""
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


class Operation:
    """A layer in one pass. ``weights`` are its parameters by role."""

    def __init__(self, layer: Layer, weights: Mapping[str, Any], arrays: Arrays) -> None:
        self.options, self.shape = layer.options, layer.shape
        self.weights, self.arrays = weights, arrays
        self.gradients: NamedArrays = {}  # of the parameters, by role
        self.needs_input_gradient = True

    def forward(self, *inputs: Any) -> Any:
        """Return the layer's output, and keep what ``backward`` needs."""
        raise NotImplementedError

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        """Return the gradients of the inputs, and fill ``gradients``."""
        raise NotImplementedError


class Windowed(Operation):
    """What convolutions and pools share: a kernel that is moved over padded images."""

    def __init__(self, layer: Layer, weights: Mapping[str, Any], arrays: Arrays) -> None:
        super().__init__(layer, weights, arrays)
        self.kernel, self.stride = layer.options["kernel"], layer.options["stride"]
        self.padding = layer.options["padding"]
        self.places: tuple[int, int] = (layer.shape[1], layer.shape[2])

    def make_padded(self, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        """Return empty images of this shape with their padding."""
        count, height, width, channels = shape
        down, across = self.padding
        return self.arrays.zeros((count, height + 2 * down, width + 2 * across, channels), fill)

    def pad(self, images: Any, fill: float = 0.0) -> Any:
        if not any(self.padding):
            return self.arrays.contiguous(images)
        result = self.make_padded(images.shape, fill)
        self.crop(result)[:] = images
        return result

    def crop(self, images: Any) -> Any:
        """Return the images without their padding."""
        down, across = self.padding
        height, width = images.shape[1:3]
        return images[:, down : height - down, across : width - across]

    def iterate_below_kernel(self, images: Any) -> Iterator[Any]:
        """Yield, for each position in the kernel, the padded images' values below it at each place."""
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                rows, columns = (
                    slice(start, start + step * (count - 1) + 1, step)
                    for start, step, count in zip((row, column), self.stride, self.places)
                )
                yield images[:, rows, columns]


class Convolution(Windowed):
    """One matrix product for a few images at a time. Its columns are made again in ``backward``."""

    def forward(self, *inputs: Any) -> Any:
        self._images = self.arrays.round_operand(inputs[0])
        count = len(self._images)
        result = self.arrays.zeros((count, *self.places, self.shape[0]))
        matrix = self._make_matrix()
        for part in self._split_batch(count):
            result[part].reshape(-1, self.shape[0])[:] = self._make_columns(self._images[part]) @ matrix
        return result + self.weights["bias"] if "bias" in self.weights else result

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        if "bias" in self.weights:
            self.gradients["bias"] = self.arrays.sum_rows(gradient.reshape(-1, self.shape[0]))
        gradient = self.arrays.contiguous(self.arrays.round_operand(gradient))
        count, channels = len(self._images), self._images.shape[3]
        weight_gradient = self.arrays.zeros((prod(self.kernel) * channels, self.shape[0]))
        inputs = self.arrays.zeros(self._images.shape) if self.needs_input_gradient else None
        matrix = self._make_matrix()
        for part in self._split_batch(count):
            rows = gradient[part].reshape(-1, self.shape[0])
            weight_gradient += self._make_columns(self._images[part]).T @ rows
            if inputs is not None:
                inputs[part] = self._add_columns(rows @ matrix.T, self._images[part].shape)
        kernel_first = weight_gradient.reshape(*self.kernel, channels, self.shape[0])
        self.gradients["weight"] = self.arrays.module.moveaxis(kernel_first, (3, 2, 0, 1), (0, 1, 2, 3))
        return (inputs,)

    def _make_matrix(self) -> Any:
        """Return the weights as (kernel rows · kernel columns · channels, filters)."""
        weight = self.arrays.round_operand(self.weights["weight"])
        return self.arrays.module.moveaxis(weight, (2, 3, 1, 0), (0, 1, 2, 3)).reshape(-1, self.shape[0])

    def _make_columns(self, images: Any) -> Any:
        if self._is_product:
            return images.reshape(-1, images.shape[3])
        return self.arrays.cut_windows(self.pad(images), self.kernel, self.stride, self.places)

    def _add_columns(self, columns: Any, shape: tuple[int, ...]) -> Any:
        """Add every value of the columns to the place that it was copied from."""
        if self._is_product:
            return columns.reshape(shape)
        images = self.make_padded(shape)
        parts = columns.reshape(shape[0], *self.places, prod(self.kernel), shape[3])
        for number, target in enumerate(self.iterate_below_kernel(images)):
            target += parts[:, :, :, number]
        return self.crop(images)

    @property
    def _is_product(self) -> bool:
        return (self.kernel, self.stride, self.padding) == ((1, 1), (1, 1), (0, 0))

    def _split_batch(self, count: int) -> Iterator[slice]:
        values = prod(self.places) * prod(self.kernel) * self._images.shape[3]
        size = max(1, self.arrays.block_values // values)
        return (slice(first, first + size) for first in range(0, count, size))


class Dense(Operation):
    def forward(self, *inputs: Any) -> Any:
        self._inputs = self.arrays.round_operand(inputs[0])
        result = self._inputs @ self.arrays.round_operand(self.weights["weight"]).T
        return result + self.weights["bias"] if "bias" in self.weights else result

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        if "bias" in self.weights:
            self.gradients["bias"] = self.arrays.sum_rows(gradient)
        gradient = self.arrays.round_operand(gradient)
        self.gradients["weight"] = gradient.T @ self._inputs
        return (gradient @ self.arrays.round_operand(self.weights["weight"]),)


class BatchNorm(Operation):
    """Normalizes by the batch's own mean and biased variance."""

    def forward(self, *inputs: Any) -> Any:
        images = inputs[0].reshape(-1, self.shape[0])
        centred = images - self.arrays.sum_rows(images) / len(images)
        variance = self.arrays.sum_rows(centred * centred) / len(images)
        self._inverse = (variance + self.options["eps"]) ** -0.5
        centred *= self._inverse
        self._normalized = centred
        result = centred * self.weights["scale"]
        result += self.weights["shift"]
        return result.reshape(inputs[0].shape)

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        rows = gradient.reshape(-1, self.shape[0])
        shift = self.arrays.sum_rows(rows)
        scale = self.arrays.sum_rows(rows * self._normalized)
        self.gradients.update(scale=scale, shift=shift)
        inputs = self._normalized * (-scale / len(rows))
        inputs -= shift / len(rows)
        inputs += rows
        inputs *= self._inverse * self.weights["scale"]
        return (inputs.reshape(gradient.shape),)


class Relu(Operation):
    def forward(self, *inputs: Any) -> Any:
        self._result = inputs[0].clip(min=0)
        return self._result

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        return (gradient * (self._result > 0),)


class MaxPool(Windowed):
    """The gradient goes to the first maximum of a window, by rows."""

    def forward(self, *inputs: Any) -> Any:
        self._images = inputs[0]
        result = None
        for values in self.iterate_below_kernel(self.pad(self._images, -float("inf"))):
            result = values * 1 if result is None else self.arrays.module.maximum(result, values)
        self._result = result
        return result

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        images = self.pad(self._images, -float("inf"))
        targets = self.arrays.zeros(images.shape)
        free = None
        for values, target in zip(self.iterate_below_kernel(images), self.iterate_below_kernel(targets)):
            hits = values == self._result
            if free is not None:
                hits &= free
            free = ~hits if free is None else free & ~hits
            target += gradient * hits
        return (self.crop(targets),)


class AveragePool(Windowed):
    def forward(self, *inputs: Any) -> Any:
        images = self.pad(inputs[0])
        self._padded_shape = tuple(images.shape)
        self._counts: Any = prod(self.kernel)
        if not self.options["count_padding"]:
            ones = self.pad(self.arrays.zeros((1, *inputs[0].shape[1:3], 1), fill=1.0))
            self._counts = sum(self.iterate_below_kernel(ones))
        return sum(self.iterate_below_kernel(images)) / self._counts

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        targets = self.arrays.zeros(self._padded_shape)
        shares = gradient / self._counts
        for target in self.iterate_below_kernel(targets):
            target += shares
        return (self.crop(targets),)


class GlobalAveragePool(Operation):
    def forward(self, *inputs: Any) -> Any:
        self._shape = tuple(inputs[0].shape)
        return inputs[0].mean(axis=(1, 2))

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        _, height, width, _ = self._shape
        share = gradient[:, None, None] / (height * width)
        return (self.arrays.zeros(self._shape) + share,)


class Flatten(Operation):
    """Channels are slowest in the canonical order."""

    def forward(self, *inputs: Any) -> Any:
        self._shape = tuple(inputs[0].shape)
        return self.arrays.module.moveaxis(inputs[0], -1, 1).reshape(self._shape[0], -1)

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        count, height, width, channels = self._shape
        images = gradient.reshape(count, channels, height, width)
        return (self.arrays.contiguous(self.arrays.module.moveaxis(images, 1, -1)),)


class Dropout(Operation):
    """Drops nothing: random masks differ between frameworks."""

    def forward(self, *inputs: Any) -> Any:
        return inputs[0]

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        return (gradient,)


class Concat(Operation):
    def forward(self, *inputs: Any) -> Any:
        result = self.arrays.zeros((*inputs[0].shape[:-1], self.shape[0]))
        self._parts = []
        first = 0
        for values in inputs:
            self._parts.append(slice(first, first + values.shape[-1]))
            result[..., self._parts[-1]] = values
            first += values.shape[-1]
        return result

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        return tuple(self.arrays.contiguous(gradient[..., part]) for part in self._parts)


class Add(Operation):
    def forward(self, *inputs: Any) -> Any:
        return inputs[0] + inputs[1]

    def backward(self, gradient: Any) -> tuple[Any, ...]:
        return gradient, gradient


OPERATIONS: dict[str, type[Operation]] = {
    "conv": Convolution,
    "batch_norm": BatchNorm,
    "relu": Relu,
    "max_pool": MaxPool,
    "avg_pool": AveragePool,
    "global_avg_pool": GlobalAveragePool,
    "flatten": Flatten,
    "dense": Dense,
    "dropout": Dropout,
    "concat": Concat,
    "add": Add,
}


class ReferenceNetwork:
    """Computes losses and gradients. It keeps nothing between two calls."""

    def __init__(self, graph: Graph, arrays: Arrays) -> None:
        self._graph, self._arrays = graph, arrays
        self._names: dict[str, dict[str, str]] = {}  # of the parameters of a layer, by role
        for parameter in graph.parameters():
            self._names.setdefault(parameter.layer, {})[parameter.role] = parameter.name
        self._with_gradient = set(self._names)  # layers whose output depends on a parameter
        for layer in graph.layers:
            if any(name in self._with_gradient for name in layer.inputs):
                self._with_gradient.add(layer.name)

    def compute_gradients(self, weights: Mapping[str, Any], samples: Any, labels: Any) -> tuple[float, Weights]:
        """Return the loss and the gradient of every parameter. Samples have channels first."""
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
        """Return the operations and the outputs of the heads."""
        first, *layers = self._graph.layers
        heads = [head.layer for head in self._graph.heads]
        uses = {layer.name: 0 for layer in self._graph.layers}  # of its output that are still to come
        for name in (*heads, *(name for layer in layers for name in layer.inputs)):
            uses[name] += 1
        outputs, operations = {first.name: images}, {}
        for layer in layers:
            own = {role: weights[name] for role, name in self._names.get(layer.name, {}).items()}
            operation = OPERATIONS[layer.kind](layer, own, self._arrays)
            operation.needs_input_gradient = any(name in self._with_gradient for name in layer.inputs)
            result = operation.forward(*(outputs[name] for name in layer.inputs))
            outputs[layer.name] = result if layer.name in heads else self._arrays.round_result(result)
            operations[layer.name] = operation
            for name in layer.inputs:
                uses[name] -= 1
                if not uses[name]:
                    del outputs[name]
        return operations, {name: outputs[name] for name in heads}

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


class ReferenceOptimizer:
    """The weights, and stochastic gradient descent with momentum and weight decay."""

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


_COPIES = 6  # of the parameters: weights, velocities, gradients, their sum, and what a step computes
_LARGEST_LAYERS = 4  # gradients and temporary arrays of the layer with the most values
_INITIAL_BYTES = 4  # of an initial weight


def estimate_needed_bytes(graph: Graph, batch: int, arrays: Arrays) -> int:
    """Estimate the memory that steps of one rank at a time need: the parameters, what the
    layers keep for ``backward``, and the columns of convolutions.
    """
    kept, columns = 0, 0
    for layer in graph.layers:
        # Dropout keeps nothing. A ReLU keeps its output, but then nothing keeps its input.
        kept += 0 if layer.kind in ("dropout", "relu") else prod(layer.shape)
        if layer.kind == "conv":  # the largest block of columns: of some images, or of a large one
            rows, width = layer.options["kernel"]
            image = prod(layer.shape[1:]) * int(rows * width) * graph.input_shapes(layer)[0][0]
            columns = max(columns, image, min(batch * image, arrays.block_values))
    largest = max(prod(layer.shape) for layer in graph.layers)
    values = batch * (kept + _LARGEST_LAYERS * largest) + 2 * columns + _COPIES * graph.parameter_count
    return values * arrays.item_bytes + graph.parameter_count * _INITIAL_BYTES
