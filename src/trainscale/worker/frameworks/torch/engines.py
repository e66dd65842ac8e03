"""Strategies by PyTorch's own engines: how the gradients of a step become new weights. Parameter servers have a file of
their own.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...job import Job
from ..base import learning_rate_schedule
from .network import TorchNetwork

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALE = 2.0**16  # of losses in fp16; PyTorch's default
# FSDP gathers a group of layers at once; groups much smaller than this spend their time on latency.
_SHARD_GROUP_PARAMETERS = 2_000_000


class TorchLocalEngine:
    """One device without communication. ``independent`` is this on every worker."""

    fused_optimizer: bool | None = True

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job = job
        self.device = device
        precision = job.config.precision
        self._autocast = _AUTOCAST.get(precision)
        self._scaler = torch.amp.GradScaler(device.type, init_scale=_FIRST_SCALE, enabled=precision == "fp16")
        self._optimizer: torch.optim.Optimizer | None = None
        self._config = job.config
        self._rate, self._updates = learning_rate_schedule(job), 0
        self._optimizer_steps = 0

    def prepare(self, network: TorchNetwork) -> nn.Module:
        """Return the module that a step calls."""
        self.network = network
        self._optimizer = self._sgd()
        return network.module

    def forward_context(self) -> AbstractContextManager:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)

    def update(self, loss: torch.Tensor) -> None:
        self._scaler.scale(loss).backward()
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(self._updates)
        self._updates += 1
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def weights(self) -> dict:
        return {
            self.network.canonical[name]: gather(parameter).numpy()
            for name, parameter in self.network.module.named_parameters()
            if parameter.requires_grad
        }

    def restore(self, weights: Mapping[str, Any]) -> None:
        """Set the parameters to weights, given by canonical name."""
        with torch.no_grad():
            for name, parameter in self.network.module.named_parameters():
                parameter.copy_(self._place(torch.from_numpy(weights[self.network.canonical[name]]), parameter))

    def _place(self, values: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        """Return values that can be copied to a parameter."""
        return values

    def skipped_updates(self) -> int:
        """Return how often the loss scale was halved. It is doubled only after 2,000 updates."""
        if not self._scaler.is_enabled():
            return 0
        return max(0, round(math.log2(_FIRST_SCALE / self._scaler.get_scale())))

    def counted_updates(self) -> int | None:
        """Return how often PyTorch's optimizer has called our hook. In fp16 a step may leave the weights unchanged."""
        return None if self._scaler.is_enabled() else self._optimizer_steps

    def _count_step(self, *_: Any) -> None:
        self._optimizer_steps += 1

    def drain(self) -> None:
        """Copy a value of the first and of the last parameter to the host, which waits for the device's queue.

        Of a sharded parameter it is a value of this rank's own part. That may be empty.
        """
        parameters = [p.detach() for p in self.network.module.parameters() if p.requires_grad]
        parts = [p.to_local() if hasattr(p, "to_local") else p for p in parameters]
        filled = [part for part in parts if part.numel()]
        for part in (*filled[:1], *filled[-1:]):
            part[(0,) * part.ndim].item()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return None

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _sgd(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(
            [p for p in self.network.module.parameters() if p.requires_grad],
            lr=self._rate(0),
            momentum=self._config.momentum,
            weight_decay=self._config.weight_decay,
            fused=self.fused_optimizer,
        )
        optimizer.register_step_post_hook(self._count_step)
        return optimizer


class TorchAllreduceEngine(TorchLocalEngine):
    """DistributedDataParallel. Each rank keeps its own batch-norm statistics, as in every other framework here."""

    def prepare(self, network: TorchNetwork) -> nn.Module:
        super().prepare(network)
        data_parallel = nn.parallel.DistributedDataParallel
        newer = "forward_sync_buffers" in inspect.signature(data_parallel).parameters  # PyTorch 2.13 renamed it
        return data_parallel(
            network.module,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **{"forward_sync_buffers" if newer else "broadcast_buffers": False},
        )

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return _make_all_reduce(size, self.device)


class TorchShardedEngine(TorchLocalEngine):
    """FSDP2. Each rank holds its share of parameters, gradients and momentum."""

    fused_optimizer = None  # DTensor has no fused SGD; PyTorch then chooses the best of the others

    def prepare(self, network: TorchNetwork) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.job.workers,))
        for group in _make_shard_groups(network.module):
            fully_shard(group, mesh=mesh)
        fully_shard(network.module, mesh=mesh)
        super().prepare(network)
        return network.module

    def restore(self, weights: Mapping[str, Any]) -> None:
        self.network.module.reshard()  # for the same reason as below
        super().restore(weights)

    def _place(self, values: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        """Return this rank's part. Every rank has all values, so nothing is sent."""
        from torch.distributed.tensor import distribute_tensor

        on_device = values.to(self.device)
        return distribute_tensor(on_device, parameter.device_mesh, parameter.placements, src_data_rank=None)

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        """Gathering parameters and scattering gradients send what an all-reduce sends."""
        return _make_all_reduce(size, self.device)

    def weights(self) -> dict:
        # Predicting leaves the root's parameters gathered, for the next step. numpy would keep their memory.
        self.network.module.reshard()
        return super().weights()


def _make_all_reduce(size: int, device: torch.device) -> Callable[[], None]:
    # The sums of many exchanges stay finite, and no value is zero.
    gradient = torch.full((max(1, size // 4),), 1e-20, device=device)

    def exchange() -> None:
        dist.all_reduce(gradient)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return exchange


def _make_shard_groups(module: nn.Module) -> list[list[nn.Module]]:
    """Group neighbouring children until a group is worth a collective. The last ones stay with the root."""
    groups, current, size = [], [], 0
    for child in module.children():
        count = sum(parameter.numel() for parameter in child.parameters())
        if not count:
            continue
        current.append(child)
        size += count
        if size >= _SHARD_GROUP_PARAMETERS:
            groups.append(current)
            current, size = [], 0
    return groups


def gather(parameter: torch.Tensor) -> torch.Tensor:
    """Return a parameter on the CPU. Where it is sharded, every rank must call this."""
    tensor = parameter.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.cpu() if tensor.dtype == torch.float64 else tensor.float().cpu()


def engine_for(job: Job, device: torch.device) -> TorchLocalEngine:
    from .parameter_server import TorchParameterServerEngine

    engines = {
        "local": TorchLocalEngine,
        "independent": TorchLocalEngine,
        "allreduce": TorchAllreduceEngine,
        "sharded": TorchShardedEngine,
        "ps": TorchParameterServerEngine,
        "ps-async": TorchParameterServerEngine,
    }
    return engines[job.config.strategy](job, device)
