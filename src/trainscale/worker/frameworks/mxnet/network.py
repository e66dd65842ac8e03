"""Networks as Gluon blocks: from the graph, Gluon's model zoo, or a user's own function."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ..base import LOSS_WEIGHTS, call_user_function, find_graph, list_heads

# What the graph calls a batch norm's parameters, and what MXNet does.
_MXNET_ROLES = {"scale": "gamma", "shift": "beta"}


@dataclass(frozen=True)
class MxnetNetwork:
    """A block, the loss weights of its outputs, and its trainable parameters in canonical order."""

    block: gluon.Block
    loss_weights: tuple[float, ...]
    parameters: dict[str, gluon.Parameter]

    @property
    def parameter_count(self) -> int:
        return sum(prod(parameter.shape) for parameter in self.parameters.values())


class GraphBlock(gluon.HybridBlock):
    """The layers of a graph in their order. MXNet traces it once and then runs the trace."""

    def __init__(self, graph: Graph, dropout: bool) -> None:
        super().__init__(prefix="")
        self._layers = [layer for layer in graph.layers if layer.kind != "input"]
        self._first = graph.layers[0].name
        self._heads = [head.layer for head in graph.heads]
        self.blocks = {}
        for layer in self._layers:
            if layer.kind == "dropout" and not dropout:
                continue
            block = _make_block(layer, graph.input_shapes(layer)[0])
            if block is not None:
                self.register_child(block, layer.identifier)
                self.blocks[layer.name] = block

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        values = {self._first: images}
        for layer in self._layers:
            inputs = [values[name] for name in layer.inputs]
            if layer.kind == "concat":
                values[layer.name] = F.concat(*inputs, dim=1)
            elif layer.kind == "add":
                values[layer.name] = inputs[0] + inputs[1]
            elif layer.name in self.blocks:
                values[layer.name] = self.blocks[layer.name](inputs[0])
            else:  # a dropout that was left out
                values[layer.name] = inputs[0]
        outputs = [values[name] for name in self._heads]
        return outputs if len(outputs) > 1 else outputs[0]


def _make_block(layer: Layer, incoming: tuple[int, ...]) -> gluon.HybridBlock | None:
    """Return a layer as a block; None if it joins others, which the forward pass does."""
    options, name = layer.options, f"{layer.identifier}_"
    window = [options.get(key) for key in ("kernel", "stride", "padding")]
    if layer.kind == "conv":
        bias = options["bias"]
        return nn.Conv2D(options["filters"], *window, use_bias=bias, in_channels=incoming[0], prefix=name)
    if layer.kind == "dense":
        return nn.Dense(options["features"], use_bias=options["bias"], flatten=False, in_units=incoming[0], prefix=name)
    if layer.kind == "batch_norm":
        # MXNet's momentum is the weight of the old statistics.
        momentum = 1 - BATCH_NORM_MOMENTUM
        return nn.BatchNorm(momentum=momentum, epsilon=options["eps"], in_channels=incoming[0], prefix=name)
    if layer.kind == "relu":
        return nn.Activation("relu", prefix=name)
    if layer.kind == "max_pool":
        return nn.MaxPool2D(*window, prefix=name)
    if layer.kind == "avg_pool":
        return nn.AvgPool2D(*window, count_include_pad=options["count_padding"], prefix=name)
    if layer.kind == "global_avg_pool":
        pooled = nn.HybridSequential(prefix=name)
        pooled.add(nn.GlobalAvgPool2D(prefix=f"{name}pool_"), nn.Flatten(prefix=f"{name}flat_"))
        return pooled
    if layer.kind == "flatten":
        return nn.Flatten(prefix=name)
    if layer.kind == "dropout":
        return SwitchableDropout(options["rate"], prefix=name)
    if layer.kind in ("concat", "add"):
        return None
    raise NotImplementedError(f"layer kind {layer.kind!r}")


class SwitchableDropout(gluon.HybridBlock):
    """MXNet's own dropout, applied to ones. Values are multiplied by the result, or by 1 while it is
    switched off. MXNet 1.9 has no dropout whose rate is an array, so a parameter without gradient,
    1 or 0, is an input of the trace.
    """

    def __init__(self, rate: float, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self._rate = rate
        with self.name_scope():
            self.active = self.params.get("active", shape=(1,), init="ones", grad_req="null")

    def hybrid_forward(self, F: Any, values: Any, active: Any) -> Any:
        factors = F.Dropout(F.ones_like(values), p=self._rate)
        switched = F.broadcast_add(F.broadcast_mul(factors, active), 1 - active)
        return values * F.BlockGrad(switched)

    def switch(self, on: bool) -> None:
        self.active.set_data(mx.nd.array([float(on)], dtype=self.active.dtype))


class Criterion(gluon.HybridBlock):
    """The weighted sum of the mean softmax cross-entropy of every head."""

    def __init__(self, loss_weights: tuple[float, ...]) -> None:
        super().__init__(prefix="criterion_")
        self._loss_weights = loss_weights
        self._cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F: Any, labels: Any, *heads: Any) -> Any:
        losses = [F.mean(self._cross_entropy(head, labels)) for head in heads]
        total = losses[0] * self._loss_weights[0]
        for weight, loss in zip(self._loss_weights[1:], losses[1:]):
            total = total + loss * weight
        return total


def build(config: Config, seed: int, dropout: bool, device: mx.Context, dtype: str) -> MxnetNetwork:
    graph = find_graph(config)
    if graph is None:
        return build_foreign(config, seed, device, dtype)
    block = GraphBlock(graph, dropout)
    block.cast(dtype)
    block.initialize(ctx=device)  # for the statistics of batch norm; all else is overwritten
    native = block.collect_params()
    parameters = {}
    for parameter in graph.parameters():
        identifier = graph.layer(parameter.layer).identifier
        role = _MXNET_ROLES.get(parameter.role, parameter.role)
        parameters[parameter.name] = native[f"{identifier}_{role}"]
    for name, values in initial_weights(graph, seed).items():
        parameters[name].set_data(mx.nd.array(values, dtype=dtype))
    return MxnetNetwork(block, tuple(head.loss_weight for head in graph.heads), parameters)


def build_foreign(config: Config, seed: int, device: mx.Context, dtype: str = "float32") -> MxnetNetwork:
    """Build ``gluon:NAME`` or ``package.module:function``. Weights that are not set are random."""
    library, _, name = config.model.partition(":")
    if library == "gluon":
        block = gluon.model_zoo.vision.get_model(name, classes=config.classes)
    else:
        block = call_user_function(config)
    if not isinstance(block, gluon.Block):
        raise TypeError(f"{config.model} returned {type(block).__name__}, not a mxnet.gluon.Block")
    mx.random.seed(seed)
    block.cast(dtype)
    for parameter in block.collect_params().values():
        if parameter._data is None:
            parameter.initialize(ctx=device, default_init=mx.init.Xavier())
        else:
            parameter.reset_ctx(device)
    shape = models.find_samples(config.model).shape(config)
    # The first images make shapes known. Inference would leave weights in a layout that stores cannot send.
    with autograd.record():
        block(mx.nd.zeros((2, *shape), ctx=device, dtype=dtype))
    trainable = {p.name: p for p in block.collect_params().values() if p.grad_req != "null"}
    return MxnetNetwork(block, LOSS_WEIGHTS, trainable)


def count_macs(block: gluon.HybridBlock, image: tuple[int, ...]) -> int:
    symbol = mx.sym.Group(list_heads(block(mx.sym.Variable("images"))))
    internals = symbol.get_internals()
    _, shapes, _ = internals.infer_shape(images=(1, *image))
    shape_of = dict(zip(internals.list_outputs(), shapes))
    nodes = json.loads(symbol.tojson())["nodes"]
    total = 0
    for node in nodes:
        if node["op"] in ("Convolution", "FullyConnected"):
            weight = shape_of[nodes[node["inputs"][1][0]]["name"]]
            total += prod(shape_of[f"{node['name']}_output"]) * prod(weight[1:])
    return total
