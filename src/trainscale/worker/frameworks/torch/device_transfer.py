"""Sends batches to a GPU from pinned host memory, on a stream of its own, so that neither the host nor the training
waits for them.
"""

from __future__ import annotations

from typing import Any

import torch

_BUFFERS = 4  # batches that may be in transfer: more than steps in flight


class DeviceTransfer:
    def __init__(self, device: torch.device, pixels: Any, labels: Any, normalization: Any, channels_last: bool) -> None:
        self._device = device
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        # Its priority is above other work that waits for the GPU, because the next step needs the batch.
        self._stream = torch.cuda.Stream(device, priority=-1)
        self._buffers = [
            tuple(torch.from_numpy(array).pin_memory() for array in (pixels, labels)) for _ in range(_BUFFERS)
        ]
        self._sent: list[torch.cuda.Event | None] = [None] * _BUFFERS
        self._next = 0
        self._factors, self._offsets = (
            torch.tensor(values, device=device)[:, None, None]
            for values in (normalization.factors, normalization.offsets)
        )
        torch.cuda.current_stream(device).synchronize()  # before the other stream reads these two

    def send(self, pixels: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a batch on the device, for what the current stream is given from now on."""
        index = self._next
        self._next = (index + 1) % _BUFFERS
        if self._sent[index] is not None:
            self._sent[index].synchronize()  # it was sent long ago
        for buffer, array in zip(self._buffers[index], (pixels, labels)):
            buffer.copy_(torch.from_numpy(array))
        pinned_pixels, pinned_labels = self._buffers[index]
        with torch.cuda.stream(self._stream):
            raw = pinned_pixels.to(self._device, non_blocking=True).contiguous(memory_format=self._layout)
            batch = raw * self._factors + self._offsets, pinned_labels.to(self._device, non_blocking=True)
            self._sent[index] = self._stream.record_event()
        stream = torch.cuda.current_stream(self._device)
        stream.wait_stream(self._stream)
        for tensor in batch:
            tensor.record_stream(stream)
        return batch
