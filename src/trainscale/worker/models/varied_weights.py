"""Initial weights for parity checks, which show mistakes that the usual ones hide.

Usually biases are 0, batch norms have scale 1 and inputs whose variance is far above eps, and hardly an activation is
above 6. No trial is timed with these weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .graph import Graph, Parameter

if TYPE_CHECKING:
    import numpy

# Channels repeat in groups of eight. A tiny channel before batch norm has a variance near eps, so that eps matters. A
# wide channel makes the input of a ReLU exceed 6. Without batch norm, the others keep the mean square of a layer.
_GROUP, _TINY_CHANNEL, _WIDE_CHANNEL = 8, 3, 5
_TINY, _WIDE, _WIDE_SCALE = 3e-3, 2.5, 4.0
_REST = math.sqrt((_GROUP - _WIDE**2) / (_GROUP - 1))
_BIAS_RANGE = 0.6

_varies: ContextVar[bool] = ContextVar("varies", default=False)


@contextmanager
def use_varied_weights() -> Iterator[None]:
    """Let ``initial_weights`` give varied weights until the context ends."""
    token = _varies.set(True)
    try:
        yield
    finally:
        _varies.reset(token)


def vary_if_requested(graph: Graph, weights: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Return the weights, varied inside of ``use_varied_weights``."""
    if not _varies.get():
        return weights
    normalized = {name for layer in graph.layers if layer.kind == "batch_norm" for name in layer.inputs}
    heads = {head.layer for head in graph.heads}
    return {
        parameter.name: _vary(parameter, weights[parameter.name], parameter.layer in normalized)
        if parameter.role != "weight" or parameter.layer not in heads
        else weights[parameter.name]
        for parameter in graph.parameters()
    }


def _vary(parameter: Parameter, values: numpy.ndarray, is_normalized: bool) -> numpy.ndarray:
    """Return float32 values that have the same bits everywhere: products of float64, rounded once."""
    import numpy as np

    channels: Any = np.arange(parameter.shape[0])
    place = channels % _GROUP
    phase = (channels * 7 % 11 + 0.5) / 11  # between 0 and 1, another for each of eleven channels
    tiny = np.where((place == _TINY_CHANNEL) & is_normalized, _TINY, 1.0)
    if parameter.role in ("bias", "shift"):
        # A large mean would hide a tiny variance from frameworks that compute it as a difference of squares.
        varied = _BIAS_RANGE * (phase - 0.45) * tiny
    elif parameter.role == "scale":
        varied = (0.5 + phase) * np.where(place == _WIDE_CHANNEL, _WIDE_SCALE, 1.0)
    else:
        factors = tiny if is_normalized else np.where(place == _WIDE_CHANNEL, _WIDE, _REST)
        varied = values.astype(np.float64) * factors.reshape(-1, *[1] * (values.ndim - 1))
    result: numpy.ndarray = varied.astype(np.float32)
    return result
