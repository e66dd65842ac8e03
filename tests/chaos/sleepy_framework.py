"""A framework that trains nothing: a step sleeps a moment and waits for all other ranks, as a gradient exchange does.

The campaign installs this module as a plug-in, so a trial costs two processes that import numpy. It runs in the ranks,
on Python 3.9 or newer. A rank is called ``chaos-rank-N`` in the process table, and does what a file tells it: in the
folder ``control`` of the folder where the command was typed, ``HOST-PID`` contains the name of a misbehaviour.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from typing import Any

import numpy as np

from trainscale.worker.config import Config
from trainscale.worker.events import ServerResult
from trainscale.worker.frameworks.base import Adapter
from trainscale.worker.frameworks.catalog import Framework
from trainscale.worker.job import SERVER
from trainscale.worker.models import Builder, Graph, ModelInfo

_STEP_SECONDS = 0.01
_PR_SET_NAME = 15
_QUIT = b"q"
PROCESS_NAME = "chaos-rank-"


class SleepyAdapter(Adapter):
    """The hub of the exchange is the first server, or rank 0 where there is none."""

    @classmethod
    def versions(cls) -> dict[str, str]:
        return {"sleepy": "1.0", "numpy": np.__version__}

    @classmethod
    def gpus(cls) -> list[str]:
        return []

    @classmethod
    def try_model(cls, config: Config) -> int:
        raise NotImplementedError("this framework trains its own network only")

    def join(self) -> None:
        job = self.job
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"{PROCESS_NAME}{job.rank}".encode(), 0, 0, 0)
        self._peers: list[socket.socket] = []
        self._updates = 0
        if job.config.strategy == "independent" or job.world == 1:
            return
        hub = job.workers if job.servers else 0
        members = job.workers if job.servers else job.workers - 1
        address = (job.addresses[hub], job.ports[hub])
        if job.rank == hub:
            with socket.create_server(address, backlog=members) as server:
                self._peers = [server.accept()[0] for _ in range(members)]
        elif job.role != SERVER:
            self._peers = [_connect(address)]

    def build(self) -> int:
        return 1

    def serve(self) -> ServerResult:
        while self._peers and self._exchange_as_hub():
            pass
        return ServerResult(updates=self._updates)

    def place(self, images: Any, labels: Any) -> Any:
        return images, labels

    def step(self, batch: Any) -> None:
        self._misbehave()
        time.sleep(_STEP_SECONDS)
        is_hub = self.job.rank == 0 and not self.job.servers
        if is_hub:
            self._exchange_as_hub()
        else:
            for peer in self._peers:
                peer.sendall(b"s")
                _receive(peer)

    def wait(self, ticket: None) -> None:
        pass

    def loss(self) -> float:
        return 1.0

    def weights(self) -> dict[str, Any]:
        return {"weight": np.zeros(1, np.float32)}

    def leave(self) -> None:
        for peer in self._peers:
            try:
                peer.sendall(_QUIT)
                peer.close()
            except OSError:
                pass

    def _exchange_as_hub(self) -> bool:
        """Hear every peer, then answer. Return False when the peers have left."""
        letters = [_receive(peer) for peer in self._peers]
        if _QUIT in letters:
            return False
        for peer in self._peers:
            peer.sendall(b"a")
        self._updates += 1
        return True

    def _misbehave(self) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}"
        try:
            with open(os.path.join(self.job.python_path[0], "control", name)) as file:  # noqa: PTH118, PTH123
                deed = file.read()
        except OSError:
            return
        while deed == "hang":
            time.sleep(1)
        piece = b"a line that is printed again and again\n" if deed == "print lines" else b"no end "
        while True:  # megabytes a second, and yet the machine of the tests has other things to do
            os.write(2, piece * 100)
            time.sleep(0.0005)


def _connect(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _receive(peer: socket.socket) -> bytes:
    letter = peer.recv(1)
    if not letter:
        raise ConnectionError("connection closed by peer")
    return letter


def draw(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    return net.finish(net.dense(net.flatten(net.input), classes, name="logits"))


_ENGINE = "a byte over TCP"
FRAMEWORK = Framework(
    name="sleepy",
    title="Sleepy",
    imports=("numpy",),
    adapter="sleepy_framework:SleepyAdapter",
    engines={"allreduce": _ENGINE, "ps": _ENGINE, "local": _ENGINE, "independent": _ENGINE},
    precisions=("fp32",),
    layouts={"cpu": ("nchw",)},
)
MODEL = ModelInfo(
    name="nap", title="Nap", builder="sleepy_framework:draw", description="for tests", image_size=4, classes=2
)
