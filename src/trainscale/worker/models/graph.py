"""A network without any framework: its layers, their shapes, and what follows from them.

`builder.Builder` writes graphs; the adapters in `worker/frameworks/` read them. Shapes have no
batch axis and put channels first, (C, H, W) or (F,), whatever layout a framework computes in.
Weights are OIHW or (out, in).

The layer kinds and their options follow. Kernel, stride and padding are pairs (height, width).

    input            the image
    conv             filters, kernel, stride, padding, bias      cross-correlation; padding is zeros
    batch_norm       eps                                         over batch, height and width; scale and shift
    relu
    max_pool         kernel, stride, padding                     padding is never the maximum
    avg_pool         kernel, stride, padding, count_padding      whether padding counts in the divisor
    global_avg_pool                                              (C, H, W) to (C,)
    flatten                                                      (C, H, W) to (C * H * W,), channel slowest
    dense            features, bias
    dropout          rate                                        the share that is dropped; the rest is scaled up
    concat                                                       two or more inputs, along channels
    add                                                          two inputs

Padding is the same on both sides of an axis, and a window that would overhang is left out. So
an output has floor((size + 2 * padding - kernel) / stride) + 1 places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

KINDS = (
    "input", "conv", "batch_norm", "relu", "max_pool", "avg_pool", "global_avg_pool", "flatten", "dense", "dropout",
    "concat", "add",
)  # fmt: skip

# Momentum is the weight of the NEW batch in the running statistics, as in PyTorch; elsewhere it is
# called 0.9. As in PyTorch, only the running variance is unbiased, by n / (n - 1).
BATCH_NORM_MOMENTUM = 0.1
BATCH_NORM_EPS = 1e-5


class ShapeError(ValueError):
    """The layers of a network do not fit each other, mostly because the image is too small."""


@dataclass(frozen=True)
class Layer:
    """One layer. `inputs` are names of earlier layers; `options` depend on the kind."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    options: Mapping[str, Any] = field(hash=False)  # numbers, booleans and pairs
    shape: tuple[int, ...]

    @property
    def identifier(self) -> str:
        """The name without dots, which some frameworks forbid. It is unique, too."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class Head:
    """A layer whose outputs are logits. The loss is the weighted sum over the heads."""

    layer: str
    loss_weight: float


@dataclass(frozen=True)
class Parameter:
    """A trainable array. `fan_in` is how many inputs one output sums; 1 for batch norm."""

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
    """Layers in an order in which they can be computed, and heads, the main one first."""

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
        return tuple(self._by_name[name].shape for name in layer.inputs)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return all parameters in canonical order: by layer, weight before bias, scale before shift."""
        parameters = []
        for layer in self.layers:
            if layer.kind == "batch_norm":
                roles = [("scale", layer.shape[:1], 1), ("shift", layer.shape[:1], 1)]
            elif layer.kind in ("conv", "dense"):
                weight = self._compute_weight_shape(layer)
                fan_in = prod(weight[1:])
                roles = [("weight", weight, fan_in), ("bias", weight[:1], fan_in)][: 1 + layer.options["bias"]]
            else:
                roles = []
            for role, shape, fan_in in roles:
                parameters.append(Parameter(f"{layer.name}.{role}", shape, layer.name, role, fan_in))
        return tuple(parameters)

    @property
    def head_weight(self) -> str:
        """The name of the main head's weights; where its layer has none, of the last weights."""
        weights = [parameter for parameter in self.parameters() if parameter.role == "weight"]
        return next((p.name for p in weights if p.layer == self.heads[0].layer), weights[-1].name)

    @property
    def parameter_count(self) -> int:
        """The number of trainable values."""
        return sum(parameter.size for parameter in self.parameters())

    @property
    def macs(self) -> int:
        """The multiply-adds of one sample's forward pass through the conv and dense layers."""
        layers = [layer for layer in self.layers if layer.kind in ("conv", "dense")]
        # A convolution applies its weights once for each place of its output map.
        return sum(prod(self._compute_weight_shape(layer)) * prod(layer.shape[1:]) for layer in layers)

    @cached_property
    def _by_name(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    def _compute_weight_shape(self, layer: Layer) -> tuple[int, ...]:
        inputs = self._by_name[layer.inputs[0]].shape[0]
        return (layer.shape[0], inputs, *layer.options.get("kernel", ()))
