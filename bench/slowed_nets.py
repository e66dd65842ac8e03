"""A small network for PyTorch on a CPU. Its worker sleeps a given share of every step. bench/compare.py measures it."""

import time

import torch
from torch import nn

_SHORTEST_SLEEP = 0.0005  # seconds; a shorter wait is a loop, because the kernel wakes a process about 0.1 ms late


class Slowed(nn.Module):
    """Wait after every step for ``share`` of the time that the step then takes in all: its speed is 1 - share."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share
        self._began: float | None = None
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        now = time.perf_counter()
        if self._began is not None:
            self._wait_until(now + (now - self._began) * self._share / (1 - self._share))
        self._began = time.perf_counter()
        output: torch.Tensor = self.network(images)
        return output

    def _wait_until(self, end: float) -> None:
        while (left := end - time.perf_counter()) > 0:
            if left > _SHORTEST_SLEEP:
                time.sleep(left - _SHORTEST_SLEEP)


def slower_0() -> nn.Module:
    return Slowed(0.0)


def slower_1() -> nn.Module:
    return Slowed(0.01)


def slower_3() -> nn.Module:
    return Slowed(0.03)


def slower_10() -> nn.Module:
    return Slowed(0.1)
