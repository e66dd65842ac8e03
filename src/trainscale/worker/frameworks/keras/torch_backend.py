"""Keras on PyTorch. The model is a torch module, so devices, process groups, the optimizer and DistributedDataParallel
are those of the PyTorch adapter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ..base import list_heads
from ..torch.adapter import TorchAdapter, TorchAllreduceAdapter
from ..torch.network import TorchNetwork
from .adapter import KerasAdapter


class KerasPyTorchAdapter(KerasAdapter, TorchAdapter):
    def prepare(self) -> None:
        job = self.job
        self._forward = self.prepare_engine(TorchNetwork(self._model, self._network.loss_weights, {}))
        # After DistributedDataParallel, which sends rank 0's seeds to all ranks.
        self.seed_dropout()
        torch.manual_seed(job.seed + job.rank)

    def place(self, images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, _ = self.arrange(images, labels)
        return torch.from_numpy(pixels).to(self.device), torch.from_numpy(labels).to(self.device)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = super().place_pixels(pixels, labels, normalization)
        # On a GPU, PyTorch's channels-last images lie in memory as Keras wants them, but their axes are PyTorch's.
        return (images.permute(0, 2, 3, 1) if self.cuda and self._channels_last else images), labels

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.cuda.Event | None:
        images, labels = batch
        outputs = self._forward(images, training=True)
        loss = self.criterion(outputs, labels)
        if self._tally is not None:
            self._count(loss, outputs, labels)
        self.update(loss)
        self._loss = loss.detach()
        return self.mark()

    def predict(self, batch: tuple[torch.Tensor, torch.Tensor]) -> Any:
        with torch.no_grad():
            return list_heads(self._model(batch[0], training=False))[0].float().cpu().numpy()

    def criterion(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        heads = [head.float() if head.dtype == torch.bfloat16 else head for head in list_heads(outputs)]
        return sum(w * functional.cross_entropy(head, labels) for w, head in zip(self._network.loss_weights, heads))

    def logits(self, batch: tuple[torch.Tensor, torch.Tensor]) -> list[Any]:
        with torch.no_grad():
            return [
                head.float().cpu().numpy() if head.dtype == torch.bfloat16 else head.cpu().numpy()
                for head in list_heads(self._forward(batch[0], training=True))
            ]


class KerasPyTorchAllreduceAdapter(KerasPyTorchAdapter, TorchAllreduceAdapter):
    """DistributedDataParallel around the model."""
