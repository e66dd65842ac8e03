"""PyTorch: devices, precision, layout, compilation, and the strategies by PyTorch's own engines.
Parameter servers are in parameter_server.py.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from ...config import Config
from ...job import Job
from ...models import find_samples
from ...sample import NONE, describe_compilation
from ...type_aliases import NamedArrays
from ..base import Adapter, learning_rate_schedule, list_common_versions, list_heads
from ..environments import make_network_variables
from . import network as networks
from .network import SwitchableDropout, TorchNetwork

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALE = 2.0**16  # of losses in fp16; PyTorch's default
# FSDP gathers a group of layers at once; much smaller groups spend their time on latency.
_SHARD_GROUP_PARAMETERS = 2_000_000


class TorchAdapter(Adapter):
    """One device without communication. ``independent`` is this on every worker."""

    ends_at_once = True
    backend: str | None = None  # of collectives on a GPU
    fused_optimizer: bool | None = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        self.device = torch.device("cuda", job.device.index) if self.cuda else torch.device("cpu")
        # Two steps in flight keep a GPU's queue filled.
        self.lag = 2 if self.cuda else 0
        self._channels_last = job.config.layout == "nhwc"
        self._transfer: tuple[torch.cuda.Stream, torch.Tensor, torch.Tensor] | None = None
        if self.cuda:
            torch.cuda.set_device(self.device)
            # By default PyTorch allows TF32 in convolutions.
            torch.backends.cuda.matmul.allow_tf32 = job.config.precision == "tf32"
            torch.backends.cudnn.allow_tf32 = job.config.precision == "tf32"
            torch.backends.cudnn.benchmark = not job.config.deterministic
        elif job.device.cores:
            torch.set_num_threads(len(job.device.cores))
        if job.config.deterministic:
            # PyTorch needs this before its first matrix product.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        precision = job.config.precision
        self._autocast = _AUTOCAST.get(precision)
        is_scaled = precision == "fp16"
        self._scaler = torch.amp.GradScaler(self.device.type, _FIRST_SCALE, enabled=is_scaled)
        self._tally: torch.Tensor | None = None
        if job.config.trains_epochs:
            self._tally = torch.zeros(2, dtype=torch.float64, device=self.device)

    @classmethod
    def versions(cls) -> dict[str, str]:
        versions = {"torch": torch.__version__, **list_common_versions()}
        if torch.version.cuda:
            versions["cuda"] = torch.version.cuda
            if torch.cuda.is_available():
                versions["cudnn"] = str(torch.backends.cudnn.version())
                versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        return versions

    @classmethod
    def gpus(cls) -> list[str]:
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]

    @classmethod
    def try_model(cls, config: Config) -> int:
        """Send one image through the network, if possible without memory for its weights."""

        def try_on(device: str) -> int:
            with torch.device(device), torch.no_grad():
                network = networks.build_foreign(config, seed=0)
                network.module.eval()(torch.zeros(1, *find_samples(config.model).shape(config)))
            return network.parameter_count

        try:
            return try_on("meta")
        except Exception:  # a network may look at its values
            return try_on("cpu")

    def join(self) -> None:
        job = self.job
        if self.backend is None:
            return
        os.environ.update(make_network_variables(job))
        backend = self.backend if self.cuda and not job.device.shared else "gloo"
        dist.init_process_group(
            backend,
            init_method=f"tcp://{job.coordinator}:{job.port}",
            rank=job.rank,
            world_size=job.world,
            device_id=self.device if backend == "nccl" else None,
        )

    def build(self) -> int:
        job = self.job
        self.network = self._build_network()
        self._forward = self.prepare_engine()
        if job.config.compile:
            self._forward = torch.compile(self._forward)
        torch.manual_seed(job.seed + job.rank)  # dropout differs between ranks, weights do not
        return self.network.parameter_count

    def _build_network(self) -> TorchNetwork:
        network = networks.build(self.config, self.job.seed, self.job.dropout)
        # FSDP wants contiguous parameters; channels-last images are enough for it.
        if self._channels_last and self.config.strategy != "sharded":
            network.module.to(memory_format=torch.channels_last)
        if self.config.precision == "fp64":
            network.module.double()
        network.module.to(self.device).train()
        return network

    def prepare_engine(self) -> nn.Module:
        """Make the optimizer; return the module that a step calls."""
        self._rates, self._updates = learning_rate_schedule(self.job), 0
        self._optimizer = torch.optim.SGD(
            [p for p in self.network.module.parameters() if p.requires_grad],
            lr=self._rates(0),
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
            fused=self.fused_optimizer,
        )
        if self._scaler.is_enabled():
            # Fused SGD leaves them uninitialised if the loss scale skips the first step.
            for parameter in self._optimizer.param_groups[0]["params"]:
                self._optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self._optimizer_steps = 0
        self._optimizer.register_step_post_hook(self._count_step)
        return self.network.module

    def _count_step(self, *_: Any) -> None:
        self._optimizer_steps += 1

    def place(self, images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        on_device = torch.from_numpy(images).to(self.device)
        if self.config.precision == "fp64":
            on_device = on_device.double()
        return on_device.contiguous(memory_format=layout), torch.from_numpy(labels).to(self.device)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple:
        """Send the 8-bit pixels, a quarter of the bytes, during the last step."""
        if not self.cuda:
            return super().place_pixels(pixels, torch.tensor(labels).numpy(), normalization)
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        if self._transfer is None:
            stream = torch.cuda.Stream(self.device, priority=-1)  # because the next step needs the batch
            numbers = (normalization.factors, normalization.offsets)
            with torch.cuda.stream(stream):
                placed = (torch.tensor(each, device=self.device) for each in numbers)
                self._transfer = stream, *(each[:, None, None] for each in placed)
        stream, factors, offsets = self._transfer
        with torch.cuda.stream(stream):
            # PyTorch uses pinned memory again when its copy is done.
            pinned = (torch.from_numpy(array).pin_memory() for array in (pixels, labels))
            raw, placed_labels = (tensor.to(self.device, non_blocking=True) for tensor in pinned)
            batch = raw.contiguous(memory_format=layout) * factors + offsets, placed_labels
        training = torch.cuda.current_stream(self.device)
        training.wait_stream(stream)
        for tensor in batch:
            tensor.record_stream(training)
        return batch

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.cuda.Event | None:
        images, labels = batch
        with self.forward_context():
            heads = self.compute_heads(images)
            loss = self._criterion(heads, labels)
        if self._tally is not None:
            with torch.no_grad():
                correct = (heads[0].argmax(1) == labels).sum()
                self._tally += torch.stack([loss.double(), correct.double()])
        self.update(loss)
        self._loss = loss.detach()
        return self.mark()

    def compute_heads(self, images: torch.Tensor) -> list[torch.Tensor]:
        return [head for head in list_heads(self._forward(images)) if head is not None]

    def forward_context(self) -> AbstractContextManager:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)

    def _criterion(self, heads: list[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        losses = [functional.cross_entropy(head, labels) for head in heads]
        if len(losses) == 1:
            return losses[0]
        return sum(weight * loss for weight, loss in zip(self.network.loss_weights, losses))

    def update(self, loss: torch.Tensor) -> None:
        self._scaler.scale(loss).backward()
        for group in self._optimizer.param_groups:
            group["lr"] = self._rates(self._updates)
        self._updates += 1
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def mark(self) -> torch.cuda.Event | None:
        if not self.cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, ticket: torch.cuda.Event | None) -> None:
        if ticket is not None:
            ticket.synchronize()

    def seconds_between(self, tickets: Sequence[torch.cuda.Event | None]) -> list[float] | None:
        if not self.cuda:
            return None
        return [a.elapsed_time(b) / 1000 for a, b in zip(tickets, tickets[1:])]

    def loss(self) -> float:
        return float(self._loss)

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.tolist()
        self._tally.zero_()
        return losses, int(correct)

    def predict(self, batch: tuple[torch.Tensor, torch.Tensor]) -> Any:
        module = self.network.module  # neither compiled nor wrapped for gradients
        module.eval()
        with torch.no_grad(), self.forward_context():
            logits = list_heads(module(batch[0]))[0]
        module.train()
        return logits.float().cpu().numpy()

    def compilation(self) -> str:
        if not self.config.compile:
            return NONE
        from torch._dynamo.utils import counters  # here, because it takes a second to import

        counts = counters["inductor"]
        cached = counts["fxgraph_cache_hit"]
        needed = cached + counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"]
        return describe_compilation(max(1, needed), cached)

    def device_peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.device) if self.cuda else None

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def takes_any_batch(self) -> bool:
        return not self.config.compile

    def weights(self) -> NamedArrays:
        weights = {}
        for name, parameter in self.network.module.named_parameters():
            if parameter.requires_grad:
                tensor = parameter.detach()
                if hasattr(tensor, "full_tensor"):  # it is sharded
                    tensor = tensor.full_tensor()
                wide = tensor if tensor.dtype == torch.float64 else tensor.float()
                weights[self.network.canonical[name]] = wide.cpu().numpy()
        return weights

    def set_dropout(self, active: bool) -> None:
        for module in self.network.module.modules():
            if isinstance(module, SwitchableDropout):
                module.switch(active)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self.network.module.named_parameters():
                values = torch.from_numpy(weights[self.network.canonical[name]])
                if hasattr(parameter, "device_mesh"):  # it is sharded
                    from torch.distributed.tensor import distribute_tensor

                    mesh, placements = parameter.device_mesh, parameter.placements
                    # Every rank has all values, so nothing is sent.
                    values = distribute_tensor(values.to(self.device), mesh, placements, src_data_rank=None)
                parameter.copy_(values)

    def skipped_updates(self) -> int:
        """Return how often the loss scale was halved. It is doubled only after 2,000 updates."""
        if not self._scaler.is_enabled():
            return 0
        return max(0, round(math.log2(_FIRST_SCALE / self._scaler.get_scale())))

    def counted_updates(self) -> int | None:
        # In fp16 a step may leave the weights unchanged.
        return None if self._scaler.is_enabled() else self._optimizer_steps

    def drain(self) -> None:
        """Copy a value of the first and of the last parameter, which waits for the device's queue.

        Of a sharded parameter it is a value of this rank's own part, which may be empty.
        """
        parameters = [p.detach() for p in self.network.module.parameters() if p.requires_grad]
        parts = [p.to_local() if hasattr(p, "to_local") else p for p in parameters]
        filled = [part for part in parts if part.numel()]
        for part in (*filled[:1], *filled[-1:]):
            part[(0,) * part.ndim].item()

    def statistics(self) -> NamedArrays:
        statistics = {}
        for layer in self.list_layers("batch_norm"):
            module = self.network.module.get_submodule(layer.identifier)
            statistics[f"{layer.name}.mean"] = module.running_mean.cpu().numpy().copy()
            statistics[f"{layer.name}.variance"] = module.running_var.cpu().numpy().copy()
        return statistics

    def drop(self, layer: str, values: Any) -> Any:
        module = self.network.module.get_submodule(layer.replace(".", "_"))
        with torch.no_grad():
            return module(torch.from_numpy(values).to(self.device)).cpu().numpy()

    def read_batch(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, ...]:
        return tuple(part.cpu().numpy() for part in batch)

    def macs(self) -> int:
        from torch.utils.flop_counter import FlopCounterMode

        module, shape = self.network.module, (2, *self.samples.shape(self.config))
        like = next(module.parameters())
        images = torch.zeros(shape, dtype=like.dtype, device=like.device)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            module(images)
        return counter.get_total_flops() // 4  # two operations each, of two images

    def logits(self, batch: tuple[torch.Tensor, torch.Tensor]) -> list[Any]:
        with torch.no_grad():
            return [head.cpu().numpy() for head in self.compute_heads(batch[0])]


class TorchAllreduceAdapter(TorchAdapter):
    """DistributedDataParallel. Each rank keeps its own batch-norm statistics."""

    backend = "nccl"

    def prepare_engine(self) -> nn.Module:
        module = super().prepare_engine()
        data_parallel = nn.parallel.DistributedDataParallel
        newer = "forward_sync_buffers"  # PyTorch 2.13 renamed it
        is_newer = newer in inspect.signature(data_parallel).parameters
        return data_parallel(
            module,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **{newer if is_newer else "broadcast_buffers": False},
        )

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        # The sums stay finite, and no value is zero.
        gradient = torch.full((max(1, size // 4),), 1e-20, device=self.device)

        def exchange() -> None:
            dist.all_reduce(gradient)
            if self.cuda:
                torch.cuda.synchronize(self.device)

        return exchange


class TorchShardedAdapter(TorchAdapter):
    """FSDP2. Each rank holds its share of parameters, gradients and momentum."""

    backend = "nccl"
    fused_optimizer = None  # DTensor has no fused SGD; PyTorch then chooses the best of the others
    # Gathering parameters and scattering gradients send what an all-reduce sends.
    make_exchange = TorchAllreduceAdapter.make_exchange

    def prepare_engine(self) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.job.workers,))
        # Neighbouring children form a group. The last ones stay with the root.
        group, size = [], 0
        for child in self.network.module.children():
            count = sum(parameter.numel() for parameter in child.parameters())
            if count:
                group.append(child)
                size += count
            if size >= _SHARD_GROUP_PARAMETERS:
                fully_shard(group, mesh=mesh)
                group, size = [], 0
        fully_shard(self.network.module, mesh=mesh)
        return super().prepare_engine()

    def restore(self, weights: Mapping[str, Any]) -> None:
        self.network.module.reshard()
        super().restore(weights)

    def weights(self) -> NamedArrays:
        # Predicting leaves the root's parameters gathered; numpy would keep their memory.
        self.network.module.reshard()
        return super().weights()
