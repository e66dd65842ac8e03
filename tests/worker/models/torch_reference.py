"""Runs a graph with torch functions, layer by layer; on the meta device that computes shapes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F

from trainscale.worker.models import Graph, Layer

Tensor = torch.Tensor


def run(graph: Graph, images: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The output of every layer, by name; dropout is left out."""
    outputs: dict[str, Tensor] = {}
    for layer in graph.layers:
        inputs = [outputs[name] for name in layer.inputs] or [images]
        prefix = f"{layer.name}."
        own = {role: parameters.get(prefix + role) for role in ("weight", "bias", "scale", "shift")}
        outputs[layer.name] = _STEPS[layer.kind](layer, inputs, own)
    return outputs


def _window(layer: Layer) -> dict[str, tuple[int, int]]:
    return {"stride": layer.options["stride"], "padding": layer.options["padding"]}


_STEPS: dict[str, Callable[[Layer, list[Tensor], dict[str, Tensor | None]], Tensor]] = {
    "input": lambda layer, x, own: x[0],
    "conv": lambda layer, x, own: F.conv2d(x[0], own["weight"], own["bias"], **_window(layer)),
    "batch_norm": lambda layer, x, own: F.batch_norm(
        x[0], None, None, own["scale"], own["shift"], training=True, eps=layer.options["eps"]
    ),
    "relu": lambda layer, x, own: F.relu(x[0]),
    "max_pool": lambda layer, x, own: F.max_pool2d(x[0], layer.options["kernel"], **_window(layer)),
    "avg_pool": lambda layer, x, own: F.avg_pool2d(
        x[0], layer.options["kernel"], count_include_pad=layer.options["count_padding"], **_window(layer)
    ),
    "global_avg_pool": lambda layer, x, own: x[0].mean(dim=(2, 3)),
    "flatten": lambda layer, x, own: x[0].flatten(1),
    "dense": lambda layer, x, own: F.linear(x[0], own["weight"], own["bias"]),
    "dropout": lambda layer, x, own: x[0],
    "concat": lambda layer, x, own: torch.cat(x, dim=1),
    "add": lambda layer, x, own: x[0] + x[1],
}
