"""The initial weights: the same bits in every framework, process and numpy version.

Two processes that build the same graph with the same seed start equal without communication, and
two frameworks can be compared step by step. Adapters bring these arrays into their own layout.

Parity checks train from varied weights, which show mistakes that the usual ones hide: biases of 0,
batch norms with scale 1 and variances far above eps, and hardly an activation above 6.
"""

from __future__ import annotations

import math
import zlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .graph import Graph, Parameter

if TYPE_CHECKING:
    import numpy

# He et al. 2015 (arXiv:1502.01852): before a ReLU, a variance of 2 / fan-in keeps signals' size.
_HIDDEN_GAIN = math.sqrt(2.0)

# Small logits give a first loss within a tenth or so of ln(classes). Another one shows a mistake.
# Zero would let no gradient through.
_HEAD_GAIN = 0.1

# Varied weights: channels repeat in groups of eight. A tiny channel before batch norm has a variance
# near eps. A wide channel makes the input of a ReLU exceed 6. Without batch norm, the others keep the
# mean square of a layer.
_GROUP, _TINY_CHANNEL, _WIDE_CHANNEL = 8, 3, 5
_TINY, _WIDE, _WIDE_SCALE = 3e-3, 2.5, 4.0
_REST = math.sqrt((_GROUP - _WIDE**2) / (_GROUP - 1))
_BIAS_RANGE = 0.6

_CHUNK = 1 << 16  # values at a time: their 512 KiB of random bits fit a core's cache

# Whether ``initial_weights`` returns varied weights.
are_varied: ContextVar[bool] = ContextVar("are_varied", default=False)


def initial_weights(graph: Graph, seed: int) -> dict[str, numpy.ndarray]:
    """Return float32 arrays by parameter name, in the canonical order and layout.

    A parameter depends only on the seed, its name and its shape, and not on other layers.
    """
    weights = {parameter.name: make_initial(graph, parameter, seed) for parameter in graph.parameters()}
    if not are_varied.get():
        return weights
    import numpy as np

    heads = {head.layer for head in graph.heads}
    norms = [layer for layer in graph.layers if layer.kind == "batch_norm"]
    normalized = {name for layer in norms for name in layer.inputs}
    for parameter in graph.parameters():
        if parameter.role == "weight" and parameter.layer in heads:
            continue
        # The bits are the same everywhere: these are products of float64, rounded once.
        is_normalized = parameter.layer in normalized
        channels: Any = np.arange(parameter.shape[0])
        place = channels % _GROUP
        phase = (channels * 7 % 11 + 0.5) / 11  # between 0 and 1, of eleven kinds
        tiny = np.where((place == _TINY_CHANNEL) & is_normalized, _TINY, 1.0)
        if parameter.role in ("bias", "shift"):
            # Variances that are differences of squares lose tiny values below a large mean.
            varied = _BIAS_RANGE * (phase - 0.45) * tiny
        elif parameter.role == "scale":
            varied = (0.5 + phase) * np.where(place == _WIDE_CHANNEL, _WIDE_SCALE, 1.0)
        else:
            factors = tiny if is_normalized else np.where(place == _WIDE_CHANNEL, _WIDE, _REST)
            values: Any = weights[parameter.name].astype(np.float64)
            varied = values * factors.reshape(-1, *[1] * (values.ndim - 1))
        weights[parameter.name] = varied.astype(np.float32)
    return weights


def make_initial(graph: Graph, parameter: Parameter, seed: int) -> numpy.ndarray:
    """Return sums of four uniform 16-bit numbers, which are never beyond 3.46 standard deviations.

    numpy's normal distribution may change with its version; a generator's raw bits do not. Sums of
    integers are exact, and one multiplication is rounded alike everywhere.
    """
    import numpy

    if parameter.role != "weight":
        fill = 1.0 if parameter.role == "scale" else 0.0
        return numpy.full(parameter.shape, fill, dtype=numpy.float32)
    is_head = any(head.layer == parameter.layer for head in graph.heads)
    deviation = (_HEAD_GAIN if is_head else _HIDDEN_GAIN) / math.sqrt(parameter.fan_in)
    sequence = numpy.random.SeedSequence([seed, zlib.crc32(parameter.name.encode())])
    bits = numpy.random.SFC64(sequence)
    values: numpy.ndarray = numpy.empty(parameter.size, dtype=numpy.float32)
    # The sum of four uniform numbers of 0 ... m - 1 has mean 2 (m - 1) and variance (m² - 1) / 3.
    levels = 1 << 16
    factor = numpy.float32(deviation / math.sqrt((levels**2 - 1) / 3))
    for start in range(0, parameter.size, _CHUNK):
        part = values[start : start + _CHUNK]
        numbers = bits.random_raw(len(part)).astype("<u8", copy=False).view("<u2").reshape(4, len(part))
        numpy.sum(numbers, axis=0, dtype=numpy.float32, out=part)
        part -= numpy.float32(2 * (levels - 1))
        part *= factor
    return values.reshape(parameter.shape)
