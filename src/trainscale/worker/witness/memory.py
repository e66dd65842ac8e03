"""How much memory the reference network needs, before it is built."""

from __future__ import annotations

from math import prod

from ..models import Graph, Layer
from .arrays import Arrays
from .reference import count_uses, overwrites_input

_COPIES = 6  # of the parameters: weights, velocities, a gradient, the sum of gradients, and what a step computes
_LARGEST_LAYERS = 4  # gradients and temporary arrays of the layer with the most values
_INITIAL_BYTES = 4  # of an initial weight


def estimate_needed_bytes(graph: Graph, batch: int, arrays: Arrays) -> int:
    """Estimate the memory that steps of one rank at a time need: the parameters, what the layers keep for the backward
    pass, and the columns of convolutions.
    """
    uses = count_uses(graph)
    kept = sum(prod(layer.shape) for layer in graph.layers if not _is_view(graph, layer, uses))
    largest = max(prod(layer.shape) for layer in graph.layers)
    values = batch * (kept + _LARGEST_LAYERS * largest) + 2 * _count_block_values(graph, batch, arrays)
    values += _COPIES * graph.parameter_count
    return values * arrays.item_bytes + graph.parameter_count * _INITIAL_BYTES


def _is_view(graph: Graph, layer: Layer, uses: dict[str, int]) -> bool:
    """Whether a layer's output needs no memory of its own."""
    return layer.kind == "dropout" or (layer.kind == "relu" and overwrites_input(graph, layer, uses))


def _count_block_values(graph: Graph, batch: int, arrays: Arrays) -> int:
    """Return the values of the largest block of columns: of some images, or of one image that is large."""
    images = [_count_columns_per_image(graph, layer) for layer in graph.layers if layer.kind == "conv"]
    return max((max(image, min(batch * image, arrays.block_values)) for image in images), default=0)


def _count_columns_per_image(graph: Graph, layer: Layer) -> int:
    channels = graph.input_shapes(layer)[0][0]
    rows, columns = layer.options["kernel"]
    return prod(layer.shape[1:]) * int(rows * columns) * channels
