"""Networks that the tests train, that fail in every way that a user's network can, or that need much memory."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn


def plain(classes: int = 10) -> nn.Module:
    """Without batch norm and dropout: n devices must reach the weights of one device with n times the batch."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


class LooksAtValues(nn.Module):
    """Its forward pass depends on the values, so it cannot be traced without them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = plain()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images if float(images.detach().mean()) < 100 else -images)


class _ToldAtTheEnd:
    """Prints when the interpreter is torn down."""

    def __del__(self) -> None:
        os.write(2, b"torn down\n")


def with_exit_handler() -> nn.Module:
    """Prints to standard error, without a flush, when the exit handlers run."""
    atexit.register(lambda: sys.stderr.write("exit handlers ran\n"))
    sys.modules["told_at_the_end"] = _ToldAtTheEnd()  # type: ignore[assignment]
    return plain()


def not_a_module() -> str:
    return "surprise"


class _Failing(nn.Module):
    """Trains like ``plain`` for a few steps; then one rank fails."""

    def __init__(self, fail: Callable[[], object], rank: int = 1) -> None:
        super().__init__()
        self.inner = plain()
        self.steps = 0
        self._fail, self._rank = fail, rank

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.device.type != "meta":
            self.steps += 1
            own_rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 1
            if self.steps == 4 and own_rank == self._rank:
                self._fail()
        return self.inner(images)


def _raise() -> None:
    raise ValueError("the network of rank 1 does not like this image")


def _exit() -> None:
    print("leaving early, as the test asked", flush=True)
    os._exit(3)


def _loop() -> None:
    while True:
        time.sleep(1)


def _chat() -> None:
    for number in range(3000):
        print(f"line {number} of a very talkative network", flush=True)
    os.write(1, b"no newline at the end, and not UTF-8: \xff\xfe")


def _fork_away() -> None:
    """Leave a grandchild in a session of its own, then crash."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    raise ValueError("crashing with a grandchild left behind")


raises = partial(_Failing, _raise)
out_of_memory = partial(_Failing, lambda: torch.empty(1 << 60))
out_of_gpu_memory = partial(_Failing, lambda: torch.empty(1 << 50, dtype=torch.uint8, device="cuda"))
killed = partial(_Failing, lambda: os.kill(os.getpid(), signal.SIGKILL))
stops = partial(_Failing, lambda: os.kill(os.getpid(), signal.SIGSTOP))
exits = partial(_Failing, _exit)
loops, loops_first = partial(_Failing, _loop), partial(_Failing, _loop, rank=0)
chatty, forks_away = partial(_Failing, _chat), partial(_Failing, _fork_away)


def never_leaves() -> nn.Module:
    """Rank 1 measures and then hangs, before it tells the parameter servers that it leaves."""
    if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
        from trainscale.worker.frameworks.torch.parameter_server import TorchParameterServerAdapter

        TorchParameterServerAdapter.leave = lambda _: time.sleep(3600)  # type: ignore[method-assign]
    return plain()


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


def _fail_for_many() -> None:
    raise ValueError("no kernel for so many images")


hungry, glutton = _Hungry, partial(_Hungry, 5 * BYTES_PER_IMAGE)
aborts = partial(_Hungry, deed=os.abort)  # as some frameworks do when an allocation fails
crashes = partial(_Hungry, deed=_fail_for_many)
