"""What a network is, without any framework: layers, their shapes, and what follows (parameters, work, bytes).

`builder.Builder` writes graphs; the adapters in `worker/frameworks/` read them. Shapes leave the batch out
and put channels first, (C, H, W) or (F,), in whatever layout a framework computes; weights are
OIHW or (out, in).

The layer kinds and their options; kernel, stride and padding are always pairs (height, width):

    input            the image
    conv             filters, kernel, stride, padding, bias      cross-correlation; padding is zeros
    batch_norm       eps                                         over batch, height and width; scale and shift
    relu
    max_pool         kernel, stride, padding                     padding is never the maximum
    avg_pool         kernel, stride, padding, count_padding      whether padding counts in the divisor
    global_avg_pool                                              (C, H, W) to (C,)
    flatten                                                      (C, H, W) to (C * H * W,), channel slowest
    dense            features, bias
    dropout          rate                                        the share dropped; what stays is scaled up
    concat                                                       two or more inputs, along channels
    add                                                          two inputs

Padding is the same on both sides of an axis, and a window that would overhang is left out: an output always
has floor((size + 2 * padding - kernel) / stride) + 1 places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

KINDS = (
    "input",
    "conv",
    "batch_norm",
    "relu",
    "max_pool",
    "avg_pool",
    "global_avg_pool",
    "flatten",
    "dense",
    "dropout",
    "concat",
    "add",
)

# Batch norm is the same in every network and framework but for its eps. Momentum is the weight of the NEW
# batch in the running statistics (PyTorch's convention; TensorFlow, Keras and MXNet call the same 0.9). The
# running variance takes the unbiased batch variance, n / (n - 1), the normalisation itself the biased one, as
# PyTorch does.
BATCH_NORM_MOMENTUM = 0.1
BATCH_NORM_EPS = 1e-5

FLOAT32_BYTES = 4


class ShapeError(ValueError):
    """The layers of a network do not fit each other; mostly because the image is too small for it."""


@dataclass(frozen=True)
class Layer:
    """One step of a network; `inputs` are names of earlier layers, `options` go by the kind (see above)."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    options: Mapping[str, Any] = field(hash=False)  # read-only; numbers, booleans and pairs of numbers
    shape: tuple[int, ...]

    @property
    def identifier(self) -> str:
        """The name where a framework wants no dots in it; unique in a graph as well."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class Head:
    """A layer that gives logits; the loss is the sum over heads of loss_weight × softmax cross-entropy."""

    layer: str
    loss_weight: float


@dataclass(frozen=True)
class Parameter:
    """A trainable array. `fan_in` is how many inputs one output of its layer sums over (1 for batch norm)."""

    name: str
    shape: tuple[int, ...]
    layer: str
    role: str  # "weight", "bias"; in batch norm "scale", "shift"
    fan_in: int

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Graph:
    """A network: layers in an order in which they can be computed, input first; heads, the main one first."""

    name: str
    layers: tuple[Layer, ...]
    heads: tuple[Head, ...]
    image_size: int
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.layers[0].shape

    def layer(self, name: str) -> Layer:
        return self._by_name[name]

    def input_shapes(self, layer: Layer) -> tuple[tuple[int, ...], ...]:
        """The shapes a layer receives, in the order of its inputs."""
        return tuple(self._by_name[name].shape for name in layer.inputs)

    def parameters(self) -> tuple[Parameter, ...]:
        """In canonical order: that of the layers, weight before bias, scale before shift."""
        return self._parameters

    @property
    def parameter_count(self) -> int:
        """Trainable values; the running statistics of batch norm are not among them."""
        return sum(parameter.size for parameter in self._parameters)

    @property
    def gradient_bytes(self) -> int:
        """What a worker has to exchange in each synchronous step, in float32."""
        return self.parameter_count * FLOAT32_BYTES

    @property
    def macs(self) -> int:
        """Multiply-adds of one image's forward pass through the conv and dense layers, all heads included."""
        return sum(self._layer_macs(layer) for layer in self.layers)

    @cached_property
    def _by_name(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    @cached_property
    def _parameters(self) -> tuple[Parameter, ...]:
        return tuple(parameter for layer in self.layers for parameter in self._layer_parameters(layer))

    def _layer_parameters(self, layer: Layer) -> list[Parameter]:
        if layer.kind == "batch_norm":
            channels = layer.shape[:1]
            return [Parameter(f"{layer.name}.{role}", channels, layer.name, role, 1) for role in ("scale", "shift")]
        if layer.kind not in ("conv", "dense"):
            return []
        weight = self._weight_shape(layer)
        fan_in = prod(weight[1:])
        found = [Parameter(f"{layer.name}.weight", weight, layer.name, "weight", fan_in)]
        if layer.options["bias"]:
            found.append(Parameter(f"{layer.name}.bias", weight[:1], layer.name, "bias", fan_in))
        return found

    def _weight_shape(self, layer: Layer) -> tuple[int, ...]:
        incoming = self._by_name[layer.inputs[0]].shape[0]
        return (layer.shape[0], incoming, *layer.options.get("kernel", ()))

    def _layer_macs(self, layer: Layer) -> int:
        if layer.kind not in ("conv", "dense"):
            return 0
        # A dense layer applies its weights once, a convolution once for each place of its output map.
        return prod(self._weight_shape(layer)) * prod(layer.shape[1:])
