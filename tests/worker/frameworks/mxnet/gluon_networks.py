"""Networks as a user of MXNet writes them; some go wrong."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mxnet import gluon
from mxnet.gluon import nn


def small(classes: int) -> gluon.Block:
    """Leaves it to the first images how many inputs a layer has."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dense(classes))
    return net


def not_a_block() -> str:
    return "surprise"


class _Trouble(gluon.Block):
    """Trains for a few steps, then does what it is told, on the second rank."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(10)
        self.steps = 0

    def forward(self, images):  # type: ignore[no-untyped-def]
        self.steps += 1
        if self.steps == 4 and os.getpid() == ranks()[1]:
            self.happen()
        return self.inner(images)

    def happen(self) -> None:
        raise NotImplementedError


def ranks() -> list[int]:
    """The processes of this trial: its keeper starts them in order."""
    children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children")
    return sorted(map(int, children.read_text().split()))


class _Raises(_Trouble):
    def happen(self) -> None:
        raise ValueError("the network of rank 1 does not like this image")


class _KillsTheServer(_Trouble):
    def happen(self) -> None:
        os.kill(ranks()[2], signal.SIGKILL)


def raises() -> gluon.Block:
    return _Raises()


def kills_the_server() -> gluon.Block:
    return _KillsTheServer()
