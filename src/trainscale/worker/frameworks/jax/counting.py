"""Counts the multiply-adds of a network by the operations of its JAX trace."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import jax

from ...config import Config
from ...models import find_samples
from .network import JaxNetwork, choose_compute_dtype


def trace(network: JaxNetwork, config: Config) -> Any:
    """Return the operations of a forward pass of one image, without computing anything."""
    channels, *sides = find_samples(config.model).shape(config)
    shape = (1, *sides, channels) if config.layout == "nhwc" else (1, channels, *sides)
    images = jax.ShapeDtypeStruct(shape, choose_compute_dtype(config.precision))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.make_jaxpr(network.apply)(network.parameters, network.statistics, images, key)


def count_macs(network: JaxNetwork, config: Config) -> int:
    return sum(_count_operation_macs(operation) for operation in _iterate_operations(trace(network, config).jaxpr))


def _iterate_operations(program: Any) -> Iterator[Any]:
    for operation in program.eqns:
        yield operation
        for value in operation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)  # closed ones hold the program inside
                if hasattr(inner, "eqns"):
                    yield from _iterate_operations(inner)


def _count_operation_macs(operation: Any) -> int:
    outputs = prod(operation.outvars[0].aval.shape) if operation.outvars else 0
    if operation.primitive.name == "conv_general_dilated":
        weights = operation.invars[1].aval.shape
        filters = weights[operation.params["dimension_numbers"].rhs_spec[0]]
        return outputs * prod(weights) // filters
    if operation.primitive.name == "dot_general":
        (summed, _), _ = operation.params["dimension_numbers"]
        return outputs * prod(operation.invars[0].aval.shape[axis] for axis in summed)
    return 0
