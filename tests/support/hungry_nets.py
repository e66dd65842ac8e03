"""Networks that need much memory for each image, or fail with many images."""

from __future__ import annotations

import os

import torch
from nets import plain
from torch import nn

BYTES_PER_IMAGE = 600 * 1024**2  # allocated but never touched: a memory limit counts it, the machine does not need it


class _Hungry(nn.Module):
    bytes_per_image = BYTES_PER_IMAGE

    def __init__(self) -> None:
        super().__init__()
        self.inner = plain()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.device.type != "meta":
            self.held = None
            self.held = torch.empty(len(images) * self.bytes_per_image, dtype=torch.uint8)
        return self.inner(images)


class _Glutton(_Hungry):
    bytes_per_image = 5 * BYTES_PER_IMAGE


class _Aborts(_Hungry):
    """Abort the process, as some frameworks do when an allocation fails."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.device.type != "meta" and len(images) > 2:
            os.abort()
        return self.inner(images)


class _Crashes(_Hungry):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.device.type != "meta" and len(images) > 2:
            raise ValueError("no kernel for so many images")
        return self.inner(images)


hungry, glutton, aborts, crashes = _Hungry, _Glutton, _Aborts, _Crashes
