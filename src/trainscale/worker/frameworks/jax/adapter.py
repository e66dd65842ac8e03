"""The JAX adapter: devices, the cluster, precision and layout of images. Strategies are in engines.py and
mesh_engines.py.

Every step is one compiled program, with --compile or without. It is compiled in the first step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import jax
import numpy as np

from ...config import Config
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, list_common_versions
from . import counting, layers
from . import network as networks
from .compilation import ProgramCounter, let_every_rank_write
from .engines import engine_for

_TOGETHER = ("allreduce", "sharded")


class JaxAdapter(Adapter, Proof):
    switches_dropout = True
    restores_weights = True
    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda"
        # JAX returns before a step is done. Two in flight keep a GPU's queue filled; on a CPU one is enough.
        self.lag = 2 if self.cuda else 1
        self._convert_pixels: Any = None
        self._restored: tuple[Mapping[str, Any], Any] | None = None
        self._clustered = job.workers > 1 and job.config.strategy in _TOGETHER
        self._programs = ProgramCounter()
        let_every_rank_write()

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Query no device, because a process must join its cluster before JAX initialises one."""
        versions = {"jax": jax.__version__, "jaxlib": metadata.version("jaxlib"), **list_common_versions()}
        for cuda in ("13", "12"):
            plugin = _find_version(f"jax-cuda{cuda}-plugin")
            if plugin:
                parts = {part: _find_version(f"nvidia-{part}-cu{cuda}") for part in ("cudnn", "nccl")}
                versions.update({"jax-cuda-plugin": plugin, "cuda": cuda, **{k: v for k, v in parts.items() if v}})
                break
        return versions

    @classmethod
    def gpus(cls) -> list[str]:
        return list_gpu_names()

    @classmethod
    def try_model(cls, config: Config) -> int:
        """Build the network in host memory and trace it for one image, without computing it."""
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            network = networks.build_foreign(config, seed=0)
            counting.trace(network, config)
        return network.parameter_count

    def join(self) -> None:
        job = self.job
        if not self._clustered:
            return
        if job.interface and not self.cuda:
            use_interface(job.interface)
        address = f"{job.coordinator}:{job.port}"
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=job.workers,
            process_id=job.rank,
            cluster_detection_method="deactivate",  # a scheduler's variables may describe something else
            # On the ranks' network only; on all networks if it is not known.
            coordinator_bind_address=address if job.interface or job.coordinator.startswith("127.") else None,
        )

    def build(self) -> int:
        job = self.job
        self._network = networks.build(job.config, job.seed, job.dropout)
        self._engine = engine_for(job, self._network)
        return self._network.parameter_count

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        if self.config.layout == "nhwc":
            images = images.transpose(0, 2, 3, 1)
        images = np.ascontiguousarray(images.astype(networks.choose_compute_dtype(self.config.precision)))
        return self._engine.place(images), self._engine.place(labels.astype(np.int32))

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[jax.Array, jax.Array]:
        """Send the 8-bit pixels, a quarter of the bytes of 32-bit numbers."""
        if self._convert_pixels is None:
            self._convert_pixels = self._make_pixel_converter(normalization)
        # One call for both, because a call costs the host as much as the transfer of its arrays.
        return tuple(self._engine.adopt(array) for array in self._convert_pixels(pixels, labels.astype(np.int32)))

    def _make_pixel_converter(self, normalization: Any) -> Any:
        dtype = networks.choose_compute_dtype(self.config.precision)
        channels_last = self.config.layout == "nhwc"
        values = (normalization.factors, normalization.offsets)
        factors, offsets = (np.array(channels, np.float32)[:, None, None] for channels in values)

        def convert(pixels: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
            images = pixels * factors + offsets
            return (images.transpose(0, 2, 3, 1) if channels_last else images).astype(dtype), labels

        return jax.jit(convert)

    def tally(self) -> tuple[float, int]:
        return self._engine.tally()

    def predict(self, batch: tuple[jax.Array, jax.Array]) -> Any:
        return self._engine.predict(batch[0])

    def step(self, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        self._loss = self._engine.step(*batch)
        return self._loss

    def wait(self, ticket: jax.Array | None) -> None:
        """Wait for the loss. All outputs of a program, so the weights too, are ready together."""
        if ticket is not None:
            ticket.block_until_ready()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return self._engine.make_exchange(size)

    def loss(self) -> float:
        return float(np.asarray(self._loss.addressable_data(0)).item())

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return read_gpu_peak_bytes() if self.cuda else None

    def weights(self) -> NamedArrays:
        return self._network.canonical(self._engine.gather_parameters())

    def set_dropout(self, active: bool) -> None:
        self._engine.set_dropout(active)

    def restore(self, weights: Mapping[str, Any]) -> None:
        if self._restored is None or self._restored[0] is not weights:  # closing steps restore the same weights again
            self._restored = weights, self._network.native(weights)
        self._engine.restore(self._restored[1])

    def counted_updates(self) -> int:
        return self._engine.counted_updates()

    def drain(self) -> None:
        self._engine.drain()

    def statistics(self) -> NamedArrays:
        return self._engine.statistics()

    def drop(self, layer: str, values: Any) -> Any:
        options = self.catalogue_graph.layer(layer)
        key = jax.random.key(self.job.seed)
        return np.asarray(layers.dropout(options, jax.numpy.asarray(values), key, self._engine.dropping))

    def macs(self) -> int:
        return counting.count_macs(self._network, self.config)

    def logits(self, batch: tuple[jax.Array, jax.Array]) -> list[Any]:
        dropping = self._engine.dropping
        apply = jax.jit(lambda *inputs: self._network.apply(*inputs, dropping=dropping)[0])
        images = batch[0].addressable_data(0)
        outputs = apply(
            self._engine.gather_parameters(), self._network.statistics, images, jax.random.key(self.job.seed)
        )
        return [np.asarray(head) for head in outputs]

    def leave(self) -> None:
        """Shut down with all ranks together. One alone would keep the others at a barrier for a minute."""
        if self._clustered:
            jax.distributed.shutdown()


def list_gpu_names() -> list[str]:
    return [device.device_kind for device in jax.devices() if device.platform == "gpu"]


def read_gpu_peak_bytes() -> int:
    return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"]


def use_interface(interface: str) -> None:
    """Tell gloo which interface to use.

    Otherwise it looks up the host's name, which may lead out of the machine. JAX has no setting for it, so JAX's own
    function is wrapped; if this JAX does not have it, gloo decides.
    """
    try:
        from jax._src.lib import _jax

        _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, interface=interface)
    except (ImportError, AttributeError):
        print(
            f"this JAX has no setting for the interface {interface}; it uses the network of the host's name",
            file=sys.stderr,
        )


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
