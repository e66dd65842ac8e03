"""The arrays of the reference network (worker/witness/) on a GPU, where float64 is fast. No adapter uses them."""

from __future__ import annotations

from typing import Any

import torch

from ...witness.reference import Arrays


def count_free_bytes(index: int) -> int:
    """Return the free memory of a GPU; 0 if PyTorch does not see it."""
    return torch.cuda.mem_get_info(index)[0] if torch.cuda.device_count() > index else 0


class TorchArrays(Arrays):
    """PyTorch's tensors on a device."""

    block_values = 1 << 27

    def __init__(self, arithmetic: str = "fp64", device: str = "cuda:0") -> None:
        super().__init__(arithmetic)
        self.module, self._device = torch, torch.device(device)
        self.dtype = getattr(torch, f"float{8 * self.item_bytes}")

    def make_like(self, arithmetic: str) -> TorchArrays:
        return TorchArrays(arithmetic, str(self._device))

    def make_array(self, values: Any) -> Any:
        return self.module.tensor(values.copy(), dtype=self.dtype, device=self._device)  # it takes no reversed views

    def place_labels(self, values: Any) -> Any:
        return self.module.tensor(list(values), device=self._device)

    def to_numpy(self, values: Any) -> Any:
        return values.cpu().numpy()

    def zeros(self, shape: tuple[int, ...], fill: float = 0.0) -> Any:
        return self.module.full(shape, fill, dtype=self.dtype, device=self._device)

    def contiguous(self, values: Any) -> Any:
        return values.contiguous()

    def sum_rows(self, matrix: Any) -> Any:
        return matrix.sum(0, dtype=self.module.float64).to(self.dtype)

    def view_strided(self, values: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
        return values.as_strided(shape, steps)
