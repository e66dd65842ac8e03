"""A graph of trainscale as numpy code. Every layer is a function that returns its output and a function ``back``, which
turns the gradient of the output into those of the inputs and of the parameters.

Images are (batch, channels, height, width). What each kind of layer means is said in worker/models/graph.py.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trainscale.worker.models import BATCH_NORM_MOMENTUM, Graph, Layer

Array = Any  # numpy.ndarray
Back = Callable[[Array], "tuple[list[Array], dict[str, Array]]"]  # gradients by input, and by role of parameter


class Network:
    """``forward`` remembers what ``backward`` needs. The weights, by canonical name, are the caller's to change."""

    def __init__(self, graph: Graph, weights: dict[str, Array], dropout: bool, random: np.random.Generator) -> None:
        self._graph, self._weights = graph, weights
        self._drops, self._random = dropout, random
        self.is_dropping = True  # if not, dropout layers draw their numbers and drop nothing
        self._statistics: dict[str, tuple[Array, Array]] = {}  # running mean and variance of every batch norm
        self.multiply_adds = 0  # of one image, in the last forward pass

    def forward(self, images: Array, training: bool = True) -> list[Array]:
        """The logits of every head; in use, by the running statistics, and nothing dropped."""
        self._training = training
        self._backs: dict[str, Back] = {}
        self.multiply_adds = 0
        values = {self._graph.layers[0].name: images}
        for layer in self._graph.layers[1:]:
            inputs = [values[name] for name in layer.inputs]
            values[layer.name], self._backs[layer.name] = getattr(self, f"_{layer.kind}")(layer, *inputs)
        return [values[head.layer] for head in self._graph.heads]

    def backward(self, slopes: list[Array]) -> dict[str, Array]:
        """Gradients of the weights, from those of the heads' logits."""
        arriving: dict[str, Array] = {head.layer: slope for head, slope in zip(self._graph.heads, slopes)}
        found: dict[str, Array] = {}
        for layer in reversed(self._graph.layers[1:]):
            to_inputs, to_parameters = self._backs[layer.name](arriving.pop(layer.name))
            for name, slope in zip(layer.inputs, to_inputs):
                arriving[name] = arriving[name] + slope if name in arriving else slope
            found.update({f"{layer.name}.{role}": slope for role, slope in to_parameters.items()})
        return found

    def _conv(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        weight, bias = self._weights[f"{layer.name}.weight"], self._weights.get(f"{layer.name}.bias")
        windows = _windows(x, layer)
        y = np.tensordot(windows, weight, ([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        self.multiply_adds += y[0].size * weight[0].size

        def back(dy: Array) -> tuple[list[Array], dict[str, Array]]:
            found = {"weight": np.tensordot(dy, windows, ([0, 2, 3], [0, 2, 3]))}
            if bias is not None:
                found["bias"] = dy.sum((0, 2, 3))
            return [_scatter(np.tensordot(dy, weight, (1, 0)).transpose(0, 3, 1, 2, 4, 5), x, layer)], found

        return y if bias is None else y + bias[:, None, None], back

    def _dense(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        weight, bias = self._weights[f"{layer.name}.weight"], self._weights.get(f"{layer.name}.bias")
        y = x @ weight.T
        self.multiply_adds += y[0].size * weight[0].size

        def back(dy: Array) -> tuple[list[Array], dict[str, Array]]:
            return [dy @ weight], {"weight": dy.T @ x, **({} if bias is None else {"bias": dy.sum(0)})}

        return y if bias is None else y + bias, back

    def _batch_norm(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        scale, shift = (self._weights[f"{layer.name}.{role}"][:, None, None] for role in ("scale", "shift"))
        over = (0, 2, 3)
        count = x.size // x.shape[1]
        if self._training:
            mean, variance = x.mean(over, keepdims=True), x.var(over, keepdims=True)
            self._remember(layer.name, mean, variance * (count / max(count - 1, 1)))
        else:
            mean, variance = self._statistics[layer.name]
        inverse = 1.0 / np.sqrt(variance + layer.options["eps"])
        normal = (x - mean) * inverse

        def back(dy: Array) -> tuple[list[Array], dict[str, Array]]:
            to_shift, to_scale = dy.sum(over), (dy * normal).sum(over)
            rest = (to_shift[:, None, None] + normal * to_scale[:, None, None]) / count
            return [scale * inverse * (dy - rest)], {"scale": to_scale, "shift": to_shift}

        return scale * normal + shift, back

    def _remember(self, name: str, mean: Array, variance: Array) -> None:
        old = self._statistics.get(name, (np.zeros_like(mean), np.ones_like(variance)))
        new = (mean, variance)
        self._statistics[name] = tuple(a + BATCH_NORM_MOMENTUM * (b - a) for a, b in zip(old, new))

    def statistics(self) -> dict[str, Array]:
        """The running statistics, by the names that a parity check compares."""
        kinds = ("mean", "variance")
        pairs = self._statistics.items()
        return {f"{name}.{kind}": values.ravel() for name, pair in pairs for kind, values in zip(kinds, pair)}

    def _relu(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        return np.maximum(x, 0), lambda dy: ([dy * (x > 0)], {})

    def _dropout(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        if not self._drops or not self._training:
            return x, lambda dy: ([dy], {})
        rate = layer.options["rate"]
        kept = (self._random.random(x.shape) >= rate).astype(x.dtype) / (1 - rate)
        if not self.is_dropping:
            kept = np.ones_like(kept)
        return x * kept, lambda dy: ([dy * kept], {})

    def drop(self, layer: Layer, x: Array) -> Array:
        """What a dropout layer makes of x in training."""
        self._training = True
        return self._dropout(layer, x)[0]

    def _max_pool(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        windows = _windows(x, layer, fill=-np.inf)
        flat = windows.reshape(*windows.shape[:4], -1)
        best = flat.argmax(-1)[..., None]

        def back(dy: Array) -> tuple[list[Array], dict[str, Array]]:
            slopes = np.zeros_like(flat)
            np.put_along_axis(slopes, best, dy[..., None], -1)
            return [_scatter(slopes.reshape(windows.shape), x, layer)], {}

        return np.take_along_axis(flat, best, -1)[..., 0], back

    def _avg_pool(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        windows = _windows(x, layer)
        counted = np.ones_like(x[:1, :1])
        inside = _windows(counted, layer, fill=float(layer.options["count_padding"])).sum((4, 5))

        def back(dy: Array) -> tuple[list[Array], dict[str, Array]]:
            return [_scatter(np.broadcast_to((dy / inside)[..., None, None], windows.shape), x, layer)], {}

        return windows.sum((4, 5)) / inside, back

    def _global_avg_pool(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        places = x.shape[2] * x.shape[3]
        return x.mean((2, 3)), lambda dy: ([np.broadcast_to(dy[..., None, None] / places, x.shape)], {})

    def _flatten(self, layer: Layer, x: Array) -> tuple[Array, Back]:
        return x.reshape(len(x), -1), lambda dy: ([dy.reshape(x.shape)], {})

    def _concat(self, layer: Layer, *parts: Array) -> tuple[Array, Back]:
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        return np.concatenate(parts, 1), lambda dy: (np.split(dy, ends, 1), {})

    def _add(self, layer: Layer, a: Array, b: Array) -> tuple[Array, Back]:
        return a + b, lambda dy: ([dy, dy], {})


def cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """The mean loss of softmax, and its gradient."""
    shifted = logits - logits.max(1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    slope = np.exp(logarithms)
    slope[rows, labels] -= 1
    return -logarithms[rows, labels].mean(), slope / len(labels)


def _windows(x: Array, layer: Layer, fill: float = 0.0) -> Array:
    """Every place of the sliding window: (batch, channels, height, width, kernel height, kernel width)."""
    (top, left), (down, right) = layer.options["padding"], layer.options["stride"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=fill)
    return sliding_window_view(padded, layer.options["kernel"], (2, 3))[:, :, ::down, ::right]


def _scatter(windows: Array, x: Array, layer: Layer) -> Array:
    """The opposite of ``_windows``: what the places hold, added up where it came from in ``x``."""
    (top, left), (down, right) = layer.options["padding"], layer.options["stride"]
    height, width = windows.shape[2:4]
    sums = np.zeros((*x.shape[:2], x.shape[2] + 2 * top, x.shape[3] + 2 * left), x.dtype)
    for i, j in np.ndindex(*layer.options["kernel"]):
        sums[:, :, i : i + down * height : down, j : j + right * width : right] += windows[..., i, j]
    return sums[:, :, top : top + x.shape[2], left : left + x.shape[3]]
