"""Networks as PyTorch modules: from the graph, from torchvision or timm, or from a user's own function."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch
from torch import fx, nn

from ... import models
from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Graph, Layer
from ...models.weights import initial_weights
from ..base import LOSS_WEIGHTS, call_user_function

# What the graph calls a batch norm's parameters, and what PyTorch does.
_TORCH_ROLES = {"scale": "weight", "shift": "bias"}


@dataclass(frozen=True)
class TorchNetwork:
    """A module, the loss weights of its outputs, and the canonical names of its parameters."""

    module: nn.Module
    loss_weights: tuple[float, ...]
    canonical: dict[str, str]

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters() if parameter.requires_grad)


def build(config: Config, seed: int, dropout: bool = True) -> TorchNetwork:
    """Build a network on the CPU, with the same initial weights on every rank."""
    if models.resolve(config.model) is None:
        return build_foreign(config, seed)
    graph = models.build(config.model, config.image_size, config.classes)
    module = from_graph(graph, dropout)
    canonical = _map_canonical_names(graph)
    weights = initial_weights(graph, seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(weights[canonical[name]]))
    return TorchNetwork(module, tuple(head.loss_weight for head in graph.heads), canonical)


def from_graph(graph: Graph, dropout: bool = True) -> fx.GraphModule:
    """Return straight-line code, which suits torch.compile and is as fast in eager mode as a module written by hand."""
    root = nn.Module()
    code = fx.Graph()
    values = {}
    for layer in graph.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.kind == "dropout" and not dropout:
            values[layer.name] = inputs[0]
            continue
        values[layer.name] = _add_node(graph, layer, inputs, root, code)
    outputs = tuple(values[head.layer] for head in graph.heads)
    code.output(outputs if len(outputs) > 1 else outputs[0])
    return fx.GraphModule(root, code, class_name=graph.name)


def _add_node(graph: Graph, layer: Layer, inputs: list[fx.Node], root: nn.Module, code: fx.Graph) -> fx.Node:
    if layer.kind == "input":
        return code.placeholder("images")
    if layer.kind == "concat":
        return code.call_function(torch.cat, (inputs, 1))
    if layer.kind == "add":
        return code.call_function(torch.add, tuple(inputs))
    if layer.kind == "flatten":
        return code.call_function(torch.flatten, (inputs[0], 1))
    if layer.kind == "global_avg_pool":
        return code.call_function(torch.mean, (inputs[0], (2, 3)))
    root.add_module(layer.identifier, _make_module(layer, graph.input_shapes(layer)[0]))
    return code.call_module(layer.identifier, tuple(inputs))


def _make_module(layer: Layer, incoming: tuple[int, ...]) -> nn.Module:
    options = layer.options
    if layer.kind == "conv":
        return nn.Conv2d(
            incoming[0],
            options["filters"],
            options["kernel"],
            options["stride"],
            options["padding"],
            bias=options["bias"],
        )
    if layer.kind == "dense":
        return nn.Linear(incoming[0], options["features"], bias=options["bias"])
    if layer.kind == "batch_norm":
        return nn.BatchNorm2d(incoming[0], eps=options["eps"], momentum=BATCH_NORM_MOMENTUM)
    if layer.kind == "relu":
        return nn.ReLU(inplace=True)
    if layer.kind == "max_pool":
        return nn.MaxPool2d(options["kernel"], options["stride"], options["padding"])
    if layer.kind == "avg_pool":
        return nn.AvgPool2d(
            options["kernel"],
            options["stride"],
            options["padding"],
            count_include_pad=options["count_padding"],
        )
    if layer.kind == "dropout":
        return SwitchableDropout(options["rate"])
    raise NotImplementedError(f"layer kind {layer.kind!r}")


def _map_canonical_names(graph: Graph) -> dict[str, str]:
    names = {}
    for parameter in graph.parameters():
        identifier = graph.layer(parameter.layer).identifier
        names[f"{identifier}.{_TORCH_ROLES.get(parameter.role, parameter.role)}"] = parameter.name
    return names


class SwitchableDropout(nn.Module):
    """As nn.Dropout, but it can be switched off without another program: numbers on the device decide, not Python.

    It draws the same random numbers. On a CPU it has as many operations as nn.Dropout; on a GPU it has three small
    kernels for one. Every value is multiplied by ``kept × factor + offset``, where ``kept`` is 0 or 1 at random.
    Switched off, the factor is 0 and the offset 1, so nothing changes.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("factor", torch.tensor(1 / (1 - rate)), persistent=False)
        self.register_buffer("offset", torch.tensor(0.0), persistent=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return values
        kept = torch.empty_like(values).bernoulli_(1 - self.rate)
        return values * torch.addcmul(self.offset, kept, self.factor)

    def switch(self, active: bool) -> None:
        """Change the numbers where they are, so that a compiled program reads the new ones."""
        self.factor.fill_(1 / (1 - self.rate) if active else 0.0)
        self.offset.fill_(0.0 if active else 1.0)


def build_foreign(config: Config, seed: int) -> TorchNetwork:
    """Build ``torchvision:NAME``, ``timm:NAME`` or ``package.module:function``; weights are random, by seed."""
    library, _, name = config.model.partition(":")
    torch.manual_seed(seed)
    if library == "torchvision":
        module = importlib.import_module("torchvision.models").get_model(name, weights=None, num_classes=config.classes)
    elif library == "timm":
        module = importlib.import_module("timm").create_model(name, pretrained=False, num_classes=config.classes)
    else:
        module = call_user_function(config)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{config.model} returned {type(module).__name__}, not a torch.nn.Module")
    names = {parameter: parameter for parameter, _ in module.named_parameters()}
    return TorchNetwork(module, LOSS_WEIGHTS, names)
