"""Networks as PyTorch modules: from the graph, torchvision or timm, or a user's own function."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch
from torch import fx, nn

from ...config import Config
from ...models.graph import BATCH_NORM_MOMENTUM, Layer
from ...models.weights import initial_weights
from ..base import LOSS_WEIGHTS, call_user_function, find_graph

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
        return sum(each.numel() for each in self.module.parameters() if each.requires_grad)


def build(config: Config, seed: int, dropout: bool = True) -> TorchNetwork:
    """Build a network on the CPU. A graph becomes straight-line code, as fast as a written module."""
    graph = find_graph(config)
    if graph is None:
        return build_foreign(config, seed)
    root, code = nn.Module(), fx.Graph()
    values: dict[str, fx.Node] = {}
    for layer in graph.layers:
        inputs = tuple(values[name] for name in layer.inputs)
        if layer.kind == "input":
            value = code.placeholder("images")
        elif layer.kind == "dropout" and not dropout:
            value = inputs[0]
        elif layer.kind == "concat":
            value = code.call_function(torch.cat, (inputs, 1))
        elif layer.kind == "add":
            value = code.call_function(torch.add, inputs)
        elif layer.kind == "flatten":
            value = code.call_function(torch.flatten, (*inputs, 1))
        elif layer.kind == "global_avg_pool":
            value = code.call_function(torch.mean, (*inputs, (2, 3)))
        else:
            root.add_module(layer.identifier, _make_module(layer, graph.input_shapes(layer)[0][0]))
            value = code.call_module(layer.identifier, inputs)
        values[layer.name] = value
    outputs = tuple(values[head.layer] for head in graph.heads)
    code.output(outputs if len(outputs) > 1 else outputs[0])
    module = fx.GraphModule(root, code, class_name=graph.name)
    canonical, weights = {}, initial_weights(graph, seed)
    for parameter in graph.parameters():
        role = _TORCH_ROLES.get(parameter.role, parameter.role)
        canonical[f"{graph.layer(parameter.layer).identifier}.{role}"] = parameter.name
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(weights[canonical[name]]))
    return TorchNetwork(module, tuple(head.loss_weight for head in graph.heads), canonical)


def _make_module(layer: Layer, channels: int) -> nn.Module:
    """``channels`` are those of the input, or its features."""
    kind, options = layer.kind, layer.options
    window = [options.get(name) for name in ("kernel", "stride", "padding")]
    if kind == "conv":
        return nn.Conv2d(channels, options["filters"], *window, bias=options["bias"])
    if kind == "dense":
        return nn.Linear(channels, options["features"], bias=options["bias"])
    if kind == "batch_norm":
        return nn.BatchNorm2d(channels, eps=options["eps"], momentum=BATCH_NORM_MOMENTUM)
    if kind == "relu":
        return nn.ReLU(inplace=True)
    if kind == "max_pool":
        return nn.MaxPool2d(*window)
    if kind == "avg_pool":
        return nn.AvgPool2d(*window, count_include_pad=options["count_padding"])
    if kind == "dropout":
        return SwitchableDropout(options["rate"])
    raise NotImplementedError(f"layer kind {kind!r}")


class SwitchableDropout(nn.Module):
    """nn.Dropout that numbers on the device switch off, so that the compiled program stays the same.

    Every value is multiplied by ``kept × factor + offset``, where ``kept`` is 0 or 1 at random.
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
        self.factor.fill_(1 / (1 - self.rate) if active else 0.0)
        self.offset.fill_(0.0 if active else 1.0)


def build_foreign(config: Config, seed: int) -> TorchNetwork:
    """Build ``torchvision:NAME``, ``timm:NAME`` or ``package.module:function``, with random weights."""
    library, _, name = config.model.partition(":")
    torch.manual_seed(seed)
    if library == "torchvision":
        get_model = importlib.import_module("torchvision.models").get_model
        module = get_model(name, weights=None, num_classes=config.classes)
    elif library == "timm":
        create_model = importlib.import_module("timm").create_model
        module = create_model(name, pretrained=False, num_classes=config.classes)
    else:
        module = call_user_function(config)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{config.model} returned {type(module).__name__}, not a torch.nn.Module")
    names = {parameter: parameter for parameter, _ in module.named_parameters()}
    return TorchNetwork(module, LOSS_WEIGHTS, names)
