"""Dropout that can be switched off without another program: numbers on the device decide, not Python."""

from __future__ import annotations

import torch
from torch import nn


class SwitchableDropout(nn.Module):
    """As nn.Dropout: it draws the same random numbers and scales them with one operation.

    On a CPU it has as many operations as nn.Dropout, which on a GPU has one kernel where this has three small ones.

    Every value is multiplied by ``kept × factor + offset``, where ``kept`` is 0 or 1 at random. Switched off, the
    factor is 0 and the offset 1, so nothing changes.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("factor", torch.tensor(1 / (1 - rate)), persistent=False)
        self.register_buffer("offset", torch.tensor(0.0), persistent=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return values
        kept = torch.empty_like(values).bernoulli_(1 - self.rate)
        return values * torch.addcmul(self.offset, kept, self.factor)

    def switch(self, active: bool) -> None:
        """Change the numbers where they are, so that a compiled program reads the new ones."""
        self.factor.fill_(1 / (1 - self.rate) if active else 0.0)
        self.offset.fill_(0.0 if active else 1.0)
