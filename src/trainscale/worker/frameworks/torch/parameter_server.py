"""Parameter servers over gloo: workers send gradients, servers hold and return the weights.

All parameters form one long vector, which is cut into as many equal ranges as there are servers,
so no server has more to do than another. A range is sent in pieces: while one is in transfer,
another is being added. Receives are posted before any send is waited for: a gloo send needs its
receiver, and two sides that wait for their sends would wait forever.

A worker's push to a server is a header [command, version] and then the pieces. Synchronous
servers wait for every worker, average, update once and answer all; asynchronous servers update
and answer each push as it comes, and count how many updates the gradient was behind (its
staleness).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from ...events import ServerResult
from ...job import Job
from ..base import learning_rate_schedule
from .adapter import TorchAdapter
from .network import TorchNetwork

_PUSH, _STOP = 1, 0
_PIECE = 4_000_000  # elements; 16 MB


def split_into_ranges(parameters: int, servers: int) -> list[tuple[int, int]]:
    bounds = [parameters * server // servers for server in range(servers + 1)]
    return list(zip(bounds, bounds[1:]))


def split_into_pieces(low: int, high: int) -> list[tuple[int, int]]:
    return [(start, min(start + _PIECE, high)) for start in range(low, high, _PIECE)]


class TorchParameterServerAdapter(TorchAdapter):
    """In a worker, the module's weights and gradients are views of long vectors."""

    backend = "gloo"  # because servers hold their weights in host memory
    updates_restored_weights = False

    def build(self) -> int:
        if self.job.role != "server":
            return super().build()
        # In the layout of the workers, which decides the order of the values in memory.
        network = self._build_network()
        self._server = ParameterServer(self.job, network)
        return network.parameter_count

    def serve(self) -> ServerResult:
        return self._server.serve()

    def prepare_engine(self) -> nn.Module:
        parameters = [p for p in self.network.module.parameters() if p.requires_grad]
        self._values = _flatten(parameters)
        self._gradients = torch.zeros_like(self._values)
        offset = 0
        for parameter in parameters:
            shape, count = parameter.shape, parameter.numel()
            strided = parameter.stride()
            parameter.data = self._values[offset : offset + count].as_strided(shape, strided, offset)
            parameter.grad = self._gradients[offset : offset + count].as_strided(shape, strided, offset)
            offset += count
        on_host = self.device.type == "cpu"
        self._outgoing = self._gradients if on_host else _copy_to_host(self._gradients)
        self._incoming = self._values if on_host else _copy_to_host(self._values)
        self._ranges = split_into_ranges(len(self._values), self.job.servers)
        self._versions = [0] * self.job.servers
        return self.network.module

    def update(self, loss: torch.Tensor) -> None:
        loss.backward()
        self._synchronize()
        self._gradients.zero_()

    def counted_updates(self) -> int | None:
        # The first server's version of the weights. An asynchronous one may be newer now.
        return self._versions[0] if self.job.config.strategy == "ps" else None

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        """Return a push and a pull of all parameters: servers take nothing smaller."""
        return self._synchronize if size == self._values.numel() * self._values.element_size() else None

    def _synchronize(self) -> None:
        """Push the gradients, and pull the new values."""
        if self._outgoing is not self._gradients:
            self._outgoing.copy_(self._gradients)
        receives, sends, headers = [], [], []
        for server, (low, high) in enumerate(self._ranges):
            rank = self.job.workers + server
            answer = torch.zeros(1, dtype=torch.int64)
            headers.append(answer)
            receives.append(dist.irecv(answer, rank))
            receives += [dist.irecv(self._incoming[a:b], rank) for a, b in split_into_pieces(low, high)]
            sends.append(dist.isend(torch.tensor([_PUSH, self._versions[server]]), rank))
            # From another vector than answers go to, so none overwrites a piece that is being sent.
            sends += [dist.isend(self._outgoing[a:b], rank) for a, b in split_into_pieces(low, high)]
        for work in (*sends, *receives):
            work.wait()
        self._versions = [int(answer) for answer in headers]
        if self._incoming is not self._values:
            self._values.copy_(self._incoming)

    def leave(self) -> None:
        if self.job.role != "server":
            for server in range(self.job.servers):
                dist.send(torch.tensor([_STOP, 0]), self.job.workers + server)
        super().leave()


class ParameterServer:
    """A server: one range of the weights, its momentum, and the same SGD as without servers."""

    def __init__(self, job: Job, network: TorchNetwork) -> None:
        self._job = job
        vector = _flatten([p for p in network.module.parameters() if p.requires_grad])
        low, high = split_into_ranges(len(vector), job.servers)[job.rank - job.workers]
        self._weights = vector[low:high].clone()
        self._momentum = torch.zeros_like(self._weights)
        self._pieces = split_into_pieces(0, high - low)
        self._is_synchronous = job.config.strategy == "ps"
        waiting = job.workers if self._is_synchronous else 1
        self._inboxes = [torch.empty_like(self._weights) for _ in range(waiting)]
        self._config, self._rate = job.config, learning_rate_schedule(job)
        self._updates = 0

    def serve(self) -> ServerResult:
        header, running, staleness = torch.zeros(2, dtype=torch.int64), self._job.workers, [0]
        while running:
            pushing = []
            # None is whichever comes first.
            for expected in range(running) if self._is_synchronous else [None]:
                worker = dist.recv(header, expected)
                if int(header[0]) == _STOP:
                    running -= 1
                else:
                    pushing.append(worker)
                    staleness.append(self._updates - int(header[1]))
            if pushing:
                self._update(pushing)
        return ServerResult(
            updates=self._updates,
            bytes=self._weights.numel() * self._weights.element_size(),
            staleness_mean=sum(staleness) / max(1, len(staleness) - 1),
            staleness_max=max(staleness),
        )

    def _update(self, workers: list[int]) -> None:
        """Update with the mean of these workers' gradients, and send them the new weights."""
        inboxes = self._inboxes[: len(workers)]
        arriving = []
        for a, b in self._pieces:
            arriving.append([dist.irecv(inbox[a:b], worker) for worker, inbox in zip(workers, inboxes)])
        self._updates += 1
        sends = [dist.isend(torch.tensor([self._updates]), worker) for worker in workers]
        for (a, b), works in zip(self._pieces, arriving):
            for work in works:
                work.wait()
            mean = inboxes[0][a:b]
            for inbox in inboxes[1:]:
                mean += inbox[a:b]
            if len(workers) > 1:
                mean.div_(len(workers))
            self._apply(mean, a, b)
            sends += [dist.isend(self._weights[a:b], worker) for worker in workers]
        for work in sends:
            work.wait()

    def _apply(self, gradient: torch.Tensor, low: int, high: int) -> None:
        """Do what torch.optim.SGD does, on a piece."""
        weights, momentum = self._weights[low:high], self._momentum[low:high]
        gradient.add_(weights, alpha=self._config.weight_decay)
        momentum.mul_(self._config.momentum).add_(gradient)
        # The schedule counts the updates of all workers as one.
        before = (self._updates - 1) // (1 if self._is_synchronous else self._job.workers)
        weights.add_(momentum, alpha=-self._rate(before))


def _flatten(parameters: list[nn.Parameter]) -> torch.Tensor:
    """Join all parameters, each in the order of its elements in memory."""
    return torch.cat([p.detach().as_strided((p.numel(),), (1,), 0) for p in parameters])


def _copy_to_host(vector: torch.Tensor) -> torch.Tensor:
    return torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True).copy_(vector)
