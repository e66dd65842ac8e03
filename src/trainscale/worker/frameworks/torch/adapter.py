"""The PyTorch adapter: devices, precision, layout, compilation. Strategies are in engines.py and
parameter_server.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from ...compiled_programs import NONE, describe_state
from ...config import Config
from ...events.ranks import ServerResult
from ...job import Job
from ...models import find_samples
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, list_common_versions
from ..catalog import WITH_SERVERS
from ..network_variables import make_network_variables
from ..user_networks import list_heads
from . import network as networks
from .device_transfer import DeviceTransfer
from .dropout import SwitchableDropout
from .engines import engine_for
from .parameter_server import ParameterServer

_WITHOUT_GROUP = ("local", "independent")
# Strategies whose collectives NCCL does. Parameter servers hold their weights in host memory and use gloo.
_ON_DEVICE = ("allreduce", "sharded")


class TorchAdapter(Adapter, Proof):
    switches_dropout = True
    restores_weights = True
    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        self.device = torch.device("cuda", job.device.index) if self.cuda else torch.device("cpu")
        # Two steps in flight keep the GPU's queue filled and its length bounded. A CPU step is done when it returns.
        self.lag = 2 if self.cuda else 0
        self._channels_last = job.config.layout == "nhwc"
        self._transfer: DeviceTransfer | None = None
        if self.cuda:
            torch.cuda.set_device(self.device)
            _set_float32(tf32=job.config.precision == "tf32")
            torch.backends.cudnn.benchmark = not job.config.deterministic
        elif job.device.cores:
            torch.set_num_threads(len(job.device.cores))
        if job.config.deterministic:
            # PyTorch needs this before its first matrix product.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        # Sum of losses and number of correct predictions since the last call of tally().
        self._tally = torch.zeros(2, dtype=torch.float64, device=self.device) if job.config.trains_epochs else None

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
        """Send one image through the network, first without memory for its weights.

        A network that looks at its values cannot do that. It is then computed on the CPU.
        """
        try:
            return cls._try_on("meta", config)
        except Exception:
            return cls._try_on("cpu", config)

    @staticmethod
    def _try_on(device: str, config: Config) -> int:
        shape = (1, *find_samples(config.model).shape(config))
        with torch.device(device), torch.no_grad():
            network = networks.build_foreign(config, seed=0)
            network.module.eval()(torch.zeros(shape))
        return network.parameter_count

    def join(self) -> None:
        job = self.job
        if job.config.strategy in _WITHOUT_GROUP:
            return
        os.environ.update(make_network_variables(job))
        nccl = self.cuda and not job.device.shared and job.config.strategy in _ON_DEVICE
        dist.init_process_group(
            "nccl" if nccl else "gloo",
            init_method=f"tcp://{job.coordinator}:{job.port}",
            rank=job.rank,
            world_size=job.world,
            device_id=self.device if nccl else None,
        )

    def build(self) -> int:
        job = self.job
        network = networks.build(job.config, job.seed, job.dropout)
        count = network.parameter_count
        module = network.module
        # FSDP wants contiguous parameters; channels-last images alone make its convolutions channels-last.
        if self._channels_last and job.config.strategy != "sharded":
            module.to(memory_format=torch.channels_last)
        if job.role == "server":
            self._server = ParameterServer(job, network)
            return count
        if job.config.precision == "fp64":
            module.double()
        module.to(self.device).train()
        self._module = module
        self._loss_weights = network.loss_weights
        self._engine = engine_for(job, self.device)
        self._forward = self._engine.prepare(network)
        if job.config.compile:
            self._forward = torch.compile(self._forward)
        torch.manual_seed(job.seed + job.rank)  # dropout differs between ranks, weights do not
        return count

    def serve(self) -> ServerResult:
        return self._server.serve()

    def place(self, images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        on_device = torch.from_numpy(images).to(self.device)
        if self.config.precision == "fp64":
            on_device = on_device.double()
        return on_device.contiguous(memory_format=layout), torch.from_numpy(labels).to(self.device)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Send the 8-bit pixels to a GPU, a quarter of the bytes, from memory that it reads during the last step."""
        if not self.cuda:
            return super().place_pixels(pixels, torch.tensor(labels).numpy(), normalization)
        if self._transfer is None:
            self._transfer = DeviceTransfer(self.device, pixels, labels, normalization, self._channels_last)
        return self._transfer.send(pixels, labels)

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.cuda.Event | None:
        images, labels = batch
        with self._engine.forward_context():
            outputs = self._forward(images)
            loss = self._criterion(outputs, labels)
        self._count(loss, outputs, labels)
        self._engine.update(loss)
        self._loss = loss.detach()
        return self.mark()

    def _count(self, loss: torch.Tensor, outputs: Any, labels: torch.Tensor) -> None:
        if self._tally is not None:
            with torch.no_grad():
                correct = (list_heads(outputs)[0].argmax(1) == labels).sum()
                self._tally += torch.stack([loss.double(), correct.double()])

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.tolist()
        self._tally.zero_()
        return losses, int(correct)

    def predict(self, batch: tuple[torch.Tensor, torch.Tensor]) -> Any:
        """Call the module itself, so that it is not compiled again, nor wrapped for gradients that nobody needs."""
        self._module.eval()
        with torch.no_grad(), self._engine.forward_context():
            logits = list_heads(self._module(batch[0]))[0]
        self._module.train()
        return logits.float().cpu().numpy()

    def _criterion(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        if isinstance(outputs, torch.Tensor):
            return functional.cross_entropy(outputs, labels)
        heads = [output for output in outputs if output is not None]
        return sum(w * functional.cross_entropy(o, labels) for w, o in zip(self._loss_weights, heads))

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

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return self._engine.make_exchange(size)

    @property
    def takes_any_batch(self) -> bool:
        return not self.config.compile

    def loss(self) -> float:
        return float(self._loss)

    def compilation(self) -> str:
        """Count the graphs that torch.compile made, and those whose code its cache had."""
        if not self.config.compile:
            return NONE
        from torch._dynamo.utils import counters  # here, because it takes a second to import

        counts = counters["inductor"]
        cached = counts["fxgraph_cache_hit"]
        needed = cached + counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"]
        return describe_state(max(1, needed), cached)

    def device_peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.device) if self.cuda else None

    def weights(self) -> NamedArrays:
        return self._engine.weights()

    def set_dropout(self, active: bool) -> None:
        for module in self._module.modules():
            if isinstance(module, SwitchableDropout):
                module.switch(active)

    @property
    def updates_restored_weights(self) -> bool:
        return self.config.strategy not in WITH_SERVERS

    def restore(self, weights: Mapping[str, Any]) -> None:
        self._engine.restore(weights)

    def skipped_updates(self) -> int:
        return self._engine.skipped_updates()

    def counted_updates(self) -> int | None:
        return self._engine.counted_updates()

    def drain(self) -> None:
        self._engine.drain()

    def statistics(self) -> NamedArrays:
        statistics = {}
        for layer in self.catalogue_graph.layers if self.catalogue_graph else ():
            if layer.kind == "batch_norm":
                module = self._module.get_submodule(layer.identifier)
                statistics[f"{layer.name}.mean"] = module.running_mean.cpu().numpy().copy()
                statistics[f"{layer.name}.variance"] = module.running_var.cpu().numpy().copy()
        return statistics

    def drop(self, layer: str, values: Any) -> Any:
        module = self._module.get_submodule(layer.replace(".", "_"))
        with torch.no_grad():
            return module(torch.from_numpy(values).to(self.device)).cpu().numpy()

    def read_batch(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, ...]:
        return tuple(part.cpu().numpy() for part in batch)

    def macs(self) -> int:
        """Count by a hook what every convolution and dense layer multiplies."""
        counts = []

        def count(layer: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
            counts.append(layer.weight.numel() * output[0, 0].numel())

        layers = [m for m in self._module.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
        hooks = [layer.register_forward_hook(count) for layer in layers]
        like = next(self._module.parameters())
        with torch.no_grad():
            shape = self.samples.shape(self.config)
            self._module(torch.zeros(2, *shape, dtype=like.dtype, device=like.device))
        for hook in hooks:
            hook.remove()
        return sum(counts)

    def logits(self, batch: tuple[torch.Tensor, torch.Tensor]) -> list[Any]:
        with torch.no_grad():
            return [head.cpu().numpy() for head in list_heads(self._forward(batch[0]))]

    def leave(self) -> None:
        if self.job.role == "server":
            dist.destroy_process_group()
        else:
            self._engine.close()


def _set_float32(tf32: bool) -> None:
    """Allow TF32 or not. By default PyTorch allows it in convolutions, but fp32 here means fp32."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
