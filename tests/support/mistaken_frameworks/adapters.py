"""The adapters with mistakes. Only a process that has PyTorch imports this module."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainscale.worker.frameworks.torch.adapter import TorchAdapter
from trainscale.worker.frameworks.torch.network import SwitchableDropout


class _Changed(TorchAdapter):
    """PyTorch of which something is changed after it was built: its modules, unless ``change_all`` says otherwise."""

    def build(self) -> int:
        count = super().build()
        self.change_all()
        return count

    def change_all(self) -> None:
        for module in list(self.network.module.modules()):
            self.change(module)

    def change(self, module: nn.Module) -> None:
        raise NotImplementedError


class no_decay(_Changed):
    """Applies no weight decay to the parameters of batch norm, as some frameworks do by default."""

    def change_all(self) -> None:
        groups = self._optimizer.param_groups
        flat = [p for p in groups[0]["params"] if p.ndim == 1]
        groups[0]["params"] = [p for p in groups[0]["params"] if p.ndim > 1]
        self._optimizer.add_param_group({"params": flat, "weight_decay": 0.0})


class other_eps(_Changed):
    """Uses another framework's epsilon in batch norm."""

    factor = 2.0

    def change(self, module: nn.Module) -> None:
        if isinstance(module, nn.BatchNorm2d):
            module.eps *= self.factor


class nearly_the_eps(other_eps):
    factor = 1.001


class frozen_biases(_Changed):
    """Leaves the biases of convolutions out of the optimizer."""

    kind, parameter = nn.Conv2d, "bias"

    def change_all(self) -> None:
        modules = [module for module in self.network.module.modules() if isinstance(module, self.kind)]
        frozen = {id(getattr(module, self.parameter)) for module in modules}
        (group,) = self._optimizer.param_groups
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in frozen]


class frozen_scale_in_fp32(frozen_biases):
    """Does not train the scale of batch norm, except in float64."""

    kind, parameter = nn.BatchNorm2d, "weight"

    def change_all(self) -> None:
        if self.config.precision == "fp32":
            super().change_all()


class transposed(_Changed):
    """Exchanges height and width of kernels, which changes the network but no count."""

    def change_all(self) -> None:
        with torch.no_grad():
            for parameter in self.network.module.parameters():
                if parameter.ndim == 4 and parameter.shape[2] == parameter.shape[3]:
                    parameter.copy_(parameter.transpose(2, 3).clone())

    def weights(self) -> dict:
        """Return the kernels exchanged back, so that the weights themselves look right."""
        weights = super().weights()
        return {
            name: values.transpose(0, 1, 3, 2).copy()
            if values.ndim == 4 and values.shape[2] == values.shape[3]
            else values
            for name, values in weights.items()
        }


class wider(TorchAdapter):
    """Counts more parameters and operations, as if the last layer were wider."""

    def macs(self) -> int:
        return super().macs() + 1

    def build(self) -> int:
        return super().build() + 10


class other_init(_Changed):
    """Starts from slightly different weights."""

    def change_all(self) -> None:
        with torch.no_grad():
            for parameter in self.network.module.parameters():
                parameter.mul_(1 + 1e-12)


class dies(TorchAdapter):
    def build(self) -> int:
        os._exit(7)


class other_momentum(_Changed):
    """Gives a new batch twice its weight in the running statistics."""

    def change(self, module: nn.Module) -> None:
        if isinstance(module, nn.BatchNorm2d):
            module.momentum *= 2


class other_dropout(_Changed):
    """Drops a twentieth more than it should."""

    def change(self, module: nn.Module) -> None:
        if isinstance(module, SwitchableDropout):
            module.rate *= 1.05


class unscaled_dropout(TorchAdapter):
    """Does not scale up what is kept."""

    def set_dropout(self, active: bool) -> None:
        super().set_dropout(active)
        for module in self.network.module.modules():
            if isinstance(module, SwitchableDropout) and active:
                module.factor.fill_(1.0)


class missing_biases(_Changed):
    """Does not add the biases of convolutions, whose gradient is 0 then, as it is before batch norm."""

    def change(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            module.forward = lambda images: (  # type: ignore[method-assign]
                module._conv_forward(images, module.weight, None) + 0 * module.bias[:, None, None]
            )


class relu6(_Changed):
    def change(self, module: nn.Module) -> None:
        if isinstance(module, nn.ReLU):
            module.forward = functional.relu6  # type: ignore[assignment]


class wrong_pixels(TorchAdapter):
    """Exchanges the first and the last channel's mean."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        return super().place_pixels(pixels, labels, replace(normalization, mean=normalization.mean[::-1]))


class hidden_bf16(_Changed):
    """Computes in bfloat16 and calls it fp32."""

    def change_all(self) -> None:
        if self.config.precision == "fp32":
            self._autocast = torch.bfloat16


class hidden_tf32(_Changed):
    """Rounds the inputs of convolutions and dense layers to ten bits, as TF32 does."""

    def change(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Conv2d, nn.Linear)) and self.config.precision == "fp32":
            module.register_forward_pre_hook(
                lambda _, inputs: (inputs[0] + (_ten_bits(inputs[0]) - inputs[0]).detach(),)
            )


def _ten_bits(values: torch.Tensor) -> torch.Tensor:
    bits = values.detach().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class no_update_in_fp32(_Changed):
    """Computes gradients and forgets to apply them, except in float64."""

    def change_all(self) -> None:
        if self.config.precision == "fp32":
            self._optimizer.step = lambda *arguments, **options: None


class other_momentum_in_fp32(other_momentum):
    """Has another momentum of batch norm, except in float64."""

    def change(self, module: nn.Module) -> None:
        if self.config.precision == "fp32":
            super().change(module)
