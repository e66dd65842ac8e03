"""How the arrays of Keras' variables relate to the canonical ones, which are OIHW and (out, in)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...models.graph import Graph, Layer
from ...type_aliases import NamedArrays


@dataclass(frozen=True)
class CanonicalVariable:
    """Converts a variable's array to the canonical one and back. Keras has HWIO and (in, out).

    ``order`` is for a dense layer that reads a flattened channels-last image: it gives each input's place among the
    canonical inputs.
    """

    name: str
    order: Any = None

    def to_canonical(self, values: Any) -> Any:
        if self.order is not None:
            reordered = np.empty_like(values)
            reordered[self.order] = values
            values = reordered
        return np.ascontiguousarray(values.transpose((3, 2, 0, 1) if values.ndim == 4 else None))

    def to_native(self, values: Any) -> Any:
        values = values.transpose((2, 3, 1, 0) if values.ndim == 4 else None)
        return values if self.order is None else values[self.order]


@dataclass(frozen=True)
class UserVariable:
    """A variable of a user's network. It has no canonical form; its name is its path in the model."""

    name: str

    def to_canonical(self, values: Any) -> Any:
        return values


def find_feature_orders(graph: Graph, channels_first: bool) -> NamedArrays:
    """Return, for each layer's output, the canonical place of each feature; None where the order is canonical.

    A flattened image is canonically channel by channel. A channels-last image flattens pixel by pixel.
    """
    orders: NamedArrays = {}
    for layer in graph.layers:
        incoming = graph.input_shapes(layer)
        if layer.kind == "flatten" and len(incoming[0]) == 3:
            places = np.arange(prod(incoming[0])).reshape(incoming[0])
            orders[layer.name] = None if channels_first else places.transpose(1, 2, 0).ravel()
        elif len(layer.shape) == 1 and layer.kind in ("concat", "add"):
            orders[layer.name] = _join_orders(layer, incoming, [orders[name] for name in layer.inputs])
        elif len(layer.shape) == 1 and layer.kind in ("relu", "dropout", "batch_norm", "flatten"):
            orders[layer.name] = orders[layer.inputs[0]]
        else:
            orders[layer.name] = None
    return orders


def _join_orders(layer: Layer, incoming: tuple[tuple[int, ...], ...], orders: list[Any]) -> Any:
    if all(order is None for order in orders):
        return None
    explicit = [np.arange(shape[0]) if order is None else order for shape, order in zip(incoming, orders)]
    if layer.kind == "concat":
        starts = np.cumsum([0] + [len(order) for order in explicit])
        return np.concatenate([start + order for start, order in zip(starts, explicit)])
    if not all(np.array_equal(order, explicit[0]) for order in explicit):
        raise NotImplementedError(f"layer {layer.name}: adds features that are in different orders in layout nhwc")
    return explicit[0]
