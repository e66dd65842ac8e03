"""The adapters with mistakes. Only a process that has PyTorch imports this module."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainscale.worker.frameworks.torch.adapter import TorchAdapter
from trainscale.worker.frameworks.torch.network import SwitchableDropout


def changed(change: Callable[[Any], object], precision: str = "") -> type[TorchAdapter]:
    """Return PyTorch's adapter that is changed after its build, in one precision or in all."""

    class Changed(TorchAdapter):
        def build(self) -> int:
            count = super().build()
            if precision in ("", self.config.precision):
                change(self)
            return count

    return Changed


def changed_modules(kind: Any, change: Callable[[Any], object], precision: str = "") -> type[TorchAdapter]:
    def change_all(adapter: TorchAdapter) -> None:
        for module in list(adapter.network.module.modules()):
            if isinstance(module, kind):
                change(module)

    return changed(change_all, precision)


def multiply(attribute: str, factor: float) -> Callable[[Any], object]:
    return lambda module: setattr(module, attribute, factor * getattr(module, attribute))


other_eps = changed_modules(nn.BatchNorm2d, multiply("eps", 2.0))
nearly_the_eps = changed_modules(nn.BatchNorm2d, multiply("eps", 1.001))
other_momentum = changed_modules(nn.BatchNorm2d, multiply("momentum", 2.0))
other_momentum_in_fp32 = changed_modules(nn.BatchNorm2d, multiply("momentum", 2.0), "fp32")
other_dropout = changed_modules(SwitchableDropout, multiply("rate", 1.05))
relu6 = changed_modules(nn.ReLU, lambda module: setattr(module, "forward", functional.relu6))
hidden_bf16 = changed(lambda adapter: setattr(adapter, "_autocast", torch.bfloat16), "fp32")
no_update_in_fp32 = changed(lambda adapter: setattr(adapter._optimizer, "step", lambda *_, **__: None), "fp32")


def _decay_no_vectors(adapter: TorchAdapter) -> None:
    """Apply no weight decay to the parameters of batch norm, as some frameworks do by default."""
    (group,) = adapter._optimizer.param_groups
    flat = [p for p in group["params"] if p.ndim == 1]
    group["params"] = [p for p in group["params"] if p.ndim > 1]
    adapter._optimizer.add_param_group({"params": flat, "weight_decay": 0.0})


no_decay = changed(_decay_no_vectors)


def _freeze(kind: Any, parameter: str) -> Callable[[TorchAdapter], None]:
    """Leave a parameter of all modules of a kind out of the optimizer."""

    def freeze(adapter: TorchAdapter) -> None:
        modules = [module for module in adapter.network.module.modules() if isinstance(module, kind)]
        frozen = {id(getattr(module, parameter)) for module in modules}
        (group,) = adapter._optimizer.param_groups
        group["params"] = [each for each in group["params"] if id(each) not in frozen]

    return freeze


frozen_biases = changed(_freeze(nn.Conv2d, "bias"))
frozen_scale_in_fp32 = changed(_freeze(nn.BatchNorm2d, "weight"), "fp32")


def _drop_bias(module: Any) -> None:
    """Do not add the bias, whose gradient is 0 then, as it is before batch norm."""
    if module.bias is not None:
        module.forward = lambda images: (
            module._conv_forward(images, module.weight, None) + 0 * module.bias[:, None, None]
        )


missing_biases = changed_modules(nn.Conv2d, _drop_bias)


def _round_inputs(module: Any) -> None:
    """Round the inputs to ten bits, as TF32 does."""

    def round_input(_: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (values,) = inputs
        bits = values.detach().contiguous().view(torch.int32)
        rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
        return (values + (rounded - values).detach(),)

    module.register_forward_pre_hook(round_input)


hidden_tf32 = changed_modules((nn.Conv2d, nn.Linear), _round_inputs, "fp32")


def _is_square(values: Any) -> bool:
    return values.ndim == 4 and values.shape[2] == values.shape[3]


def _start_elsewhere(adapter: TorchAdapter) -> None:
    with torch.no_grad():
        for parameter in adapter.network.module.parameters():
            parameter.mul_(1 + 1e-12)


def _transpose(adapter: TorchAdapter) -> None:
    """Exchange height and width of kernels, which changes the network but no count."""
    with torch.no_grad():
        for parameter in filter(_is_square, adapter.network.module.parameters()):
            parameter.copy_(parameter.transpose(2, 3).clone())


other_init = changed(_start_elsewhere)


class transposed(changed(_transpose)):  # type: ignore[misc]
    def weights(self) -> dict:
        """Return the kernels exchanged back, so that the weights themselves look right."""
        return {
            name: values.transpose(0, 1, 3, 2).copy() if _is_square(values) else values
            for name, values in super().weights().items()
        }


class wider(TorchAdapter):
    """Counts more parameters and operations, as if the last layer were wider."""

    def macs(self) -> int:
        return super().macs() + 1

    def build(self) -> int:
        return super().build() + 10


class dies(TorchAdapter):
    def build(self) -> int:
        os._exit(7)


class unscaled_dropout(TorchAdapter):
    """Does not scale up what is kept."""

    def set_dropout(self, active: bool) -> None:
        super().set_dropout(active)
        for module in self.network.module.modules():
            if isinstance(module, SwitchableDropout) and active:
                module.factor.fill_(1.0)


class wrong_pixels(TorchAdapter):
    """Exchanges the first and the last channel's mean."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        wrong = replace(normalization, mean=normalization.mean[::-1])
        return super().place_pixels(pixels, labels, wrong)
