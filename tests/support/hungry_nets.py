"""Networks that need much memory for each image, or fail with many images."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch
from nets import plain
from torch import nn

BYTES_PER_IMAGE = 600 * 1024**2  # allocated but never touched: a memory limit counts it, the machine does not need it


class _Hungry(nn.Module):
    """Keeps memory for each image, or does a deed where there are more than two images."""

    def __init__(self, bytes_per_image: int = BYTES_PER_IMAGE, deed: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.inner = plain()
        self._bytes_per_image, self._deed = bytes_per_image, deed

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.device.type == "meta":
            return self.inner(images)
        if self._deed is None:
            self.held = None
            self.held = torch.empty(len(images) * self._bytes_per_image, dtype=torch.uint8)
        elif len(images) > 2:
            self._deed()
        return self.inner(images)


def _fail() -> None:
    raise ValueError("no kernel for so many images")


hungry, glutton = _Hungry, partial(_Hungry, 5 * BYTES_PER_IMAGE)
aborts = partial(_Hungry, deed=os.abort)  # as some frameworks do when an allocation fails
crashes = partial(_Hungry, deed=_fail)
