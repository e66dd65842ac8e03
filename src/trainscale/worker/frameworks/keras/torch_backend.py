"""Keras on PyTorch. The model is a torch module, so devices, process groups, the optimizer and
DistributedDataParallel are those of the PyTorch adapter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...job import Job
from ..base import list_heads
from ..torch.adapter import TorchAdapter, TorchAllreduceAdapter
from ..torch.network import TorchNetwork
from .adapter import KerasAdapter


class KerasPyTorchAdapter(KerasAdapter, TorchAdapter):
    _criterion = TorchAdapter._criterion

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._autocast = None  # Keras has a policy for each layer instead

    def build(self) -> int:
        count = super().build()
        self.seed_dropout()  # again: DistributedDataParallel has sent rank 0's seeds to all
        return count

    def _build_network(self) -> TorchNetwork:
        return TorchNetwork(self.build_model(), self._keras.loss_weights, {})

    def place(self, images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if self._channels_last:
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        dtype = "float64" if self.config.precision == "fp64" else "float32"
        placed = torch.from_numpy(images.astype(dtype, copy=False)).to(self.device)
        return placed, torch.from_numpy(labels).to(self.device)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple:
        images, labels = super().place_pixels(pixels, labels, normalization)
        if self.cuda and self._channels_last:  # in memory as Keras wants them, with other axes
            images = images.permute(0, 2, 3, 1)
        return images, labels

    def compute_heads(self, images: torch.Tensor, training: bool = True) -> list[torch.Tensor]:
        heads = list_heads((self._forward if training else self._model)(images, training=training))
        return [head.float() if head.dtype == torch.bfloat16 else head for head in heads]

    def predict(self, batch: tuple[torch.Tensor, torch.Tensor]) -> Any:
        with torch.no_grad():
            return self.compute_heads(batch[0], training=False)[0].float().cpu().numpy()


class KerasPyTorchAllreduceAdapter(KerasPyTorchAdapter, TorchAllreduceAdapter):
    """DistributedDataParallel around the model."""
