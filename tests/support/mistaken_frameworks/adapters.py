"""The adapters with mistakes. Only a process that has PyTorch imports this module."""

from __future__ import annotations

import os

import torch

from trainscale.worker.frameworks.torch.adapter import TorchAdapter


class no_decay(TorchAdapter):
    """Applies no weight decay to the parameters of batch norm, as some frameworks do by default."""

    def build(self) -> int:
        count = super().build()
        groups = self._engine._optimizer.param_groups
        flat = [p for p in groups[0]["params"] if p.ndim == 1]
        groups[0]["params"] = [p for p in groups[0]["params"] if p.ndim > 1]
        self._engine._optimizer.add_param_group({"params": flat, "weight_decay": 0.0})
        return count


class other_eps(TorchAdapter):
    """Uses another framework's epsilon in batch norm."""

    def build(self) -> int:
        count = super().build()
        for module in self._module.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eps *= 2
        return count


class transposed(TorchAdapter):
    """Exchanges height and width of kernels, which changes the network but no count."""

    def build(self) -> int:
        count = super().build()
        with torch.no_grad():
            for parameter in self._module.parameters():
                if parameter.ndim == 4 and parameter.shape[2] == parameter.shape[3]:
                    parameter.copy_(parameter.transpose(2, 3).clone())
        return count

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


class other_init(TorchAdapter):
    """Starts from slightly different weights."""

    def build(self) -> int:
        count = super().build()
        with torch.no_grad():
            for parameter in self._module.parameters():
                parameter.mul_(1 + 1e-12)
        return count


class dies(TorchAdapter):
    def build(self) -> int:
        os._exit(7)
