"""Images on their way to a GPU: from host memory that is pinned, on a stream of their own, so that neither the host nor
the training waits for them.
"""

from __future__ import annotations

from typing import Any

import torch

_BUFFERS = 4  # batches that may be on their way: more than steps in flight


class Dispatch:
    def __init__(self, device: torch.device, pixels: Any, labels: Any, normal: Any, channels_last: bool) -> None:
        self._device = device
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        # Before whatever else waits for the GPU: the step after this one needs them.
        self._stream = torch.cuda.Stream(device, priority=-1)
        self._buffers = [
            tuple(torch.from_numpy(array).pin_memory() for array in (pixels, labels)) for _ in range(_BUFFERS)
        ]
        self._sent: list[torch.cuda.Event | None] = [None] * _BUFFERS
        self._turn = 0
        self._factors, self._offsets = (
            torch.tensor(values, device=device)[:, None, None] for values in (normal.factors, normal.offsets)
        )
        torch.cuda.current_stream(device).synchronize()  # these two are there before the other stream reads them

    def send(self, pixels: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch on the device, for whatever is asked of the current stream from now on."""
        turn = self._turn
        self._turn = (turn + 1) % _BUFFERS
        if self._sent[turn] is not None:
            self._sent[turn].synchronize()  # it has left long ago
        for buffer, array in zip(self._buffers[turn], (pixels, labels)):
            buffer.copy_(torch.from_numpy(array))
        images, truth = self._buffers[turn]
        with torch.cuda.stream(self._stream):
            raw = images.to(self._device, non_blocking=True).contiguous(memory_format=self._layout)
            placed = raw * self._factors + self._offsets, truth.to(self._device, non_blocking=True)
            self._sent[turn] = self._stream.record_event()
        stream = torch.cuda.current_stream(self._device)
        stream.wait_stream(self._stream)
        for tensor in placed:
            tensor.record_stream(stream)
        return placed
