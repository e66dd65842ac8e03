"""The JAX adapter: devices, the cluster, precision and layout of images. Strategies are in engines.py.

Every step is one compiled program, with --compile or without; it is compiled in the first step.
"""

from __future__ import annotations

import functools
import sys
from importlib import metadata
from typing import Any

import jax
import numpy as np

from ...config import Config
from ...job import Job
from ..base import Adapter
from . import counting
from . import network as networks
from .engines import engine_for

_TOGETHER = ("allreduce", "sharded")


class JaxAdapter(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda"
        # JAX returns before a step is done. Two in flight keep a GPU's queue filled; on a CPU one fills the gap.
        self.lag = 2 if self.cuda else 1
        self._numbers: Any = None
        self._clustered = job.workers > 1 and job.config.strategy in _TOGETHER

    @classmethod
    def look(cls) -> dict[str, Any]:
        """For the probe: what this JAX is and what it sees."""
        gpus = [device.device_kind for device in jax.devices() if device.platform == "gpu"]
        return {"version": jax.__version__, "versions": _versions(), "gpus": gpus}

    @classmethod
    def try_model(cls, config: Config) -> dict[str, int]:
        """For the probe: the network built in host memory, and traced for one image without computing it."""
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            network = networks.build_foreign(config, seed=0)
            counting.trace(network, config)
        return {"parameters": network.parameter_count}

    def versions(self) -> dict[str, str]:
        return _versions()

    def join(self) -> None:
        job = self.job
        if not self._clustered:
            return
        if job.interface and not self.cuda:
            speak_on(job.interface)
        address = f"{job.coordinator}:{job.port}"
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=job.workers,
            process_id=job.rank,
            cluster_detection_method="deactivate",  # the job knows; a scheduler's variables may mean something else
            # On the ranks' network alone; where that is not known, on all.
            coordinator_bind_address=address if job.interface or job.coordinator.startswith("127.") else None,
        )

    def build(self) -> int:
        job = self.job
        self._network = networks.build(job.config, job.seed, job.dropout)
        self._engine = engine_for(job, self._network)
        return self._network.parameter_count

    def serve(self) -> dict[str, Any]:
        raise NotImplementedError("JAX has no parameter servers")

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        if self.job.config.layout == "nhwc":
            images = images.transpose(0, 2, 3, 1)
        images = np.ascontiguousarray(images.astype(networks.compute_dtype(self.job.config.precision)))
        return self._engine.place(images), self._engine.place(labels.astype(np.int32))

    def place_pixels(self, pixels: Any, labels: Any, normal: Any) -> tuple[jax.Array, jax.Array]:
        """The 8-bit pixels travel, a quarter of what 32-bit numbers would be."""
        if self._numbers is None:
            self._numbers = self._from_pixels(normal)
        # One call for both: each costs the host as much as its arrays' journey.
        return tuple(self._engine.adopt(array) for array in self._numbers(pixels, labels.astype(np.int32)))

    def _from_pixels(self, normal: Any) -> Any:
        dtype = networks.compute_dtype(self.job.config.precision)
        last = self.job.config.layout == "nhwc"
        factors, offsets = (np.array(values, np.float32)[:, None, None] for values in (normal.factors, normal.offsets))

        def numbers(pixels: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
            images = pixels * factors + offsets
            return (images.transpose(0, 2, 3, 1) if last else images).astype(dtype), labels

        return jax.jit(numbers)

    def tally(self) -> tuple[float, int]:
        losses, right = self._engine.tally()
        return float(losses), int(right)

    def predict(self, batch: tuple[jax.Array, jax.Array]) -> Any:
        return self._engine.predict(batch[0])

    def step(self, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        self._loss = self._engine.step(*batch)
        return self._loss

    def mark(self) -> None:
        return None

    def wait(self, ticket: jax.Array | None) -> None:
        """The outputs of a program are ready together, so when the loss is, the weights are."""
        if ticket is not None:
            ticket.block_until_ready()

    def loss(self) -> float:
        return float(np.asarray(self._loss.addressable_data(0)).item())

    def device_peak_bytes(self) -> int | None:
        return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] if self.cuda else None

    def weights(self) -> dict[str, Any]:
        return self._network.canonical(self._engine.parameters())

    def macs(self) -> int:
        return counting.macs(self._network, self.job.config)

    def logits(self, batch: tuple[jax.Array, jax.Array]) -> list[Any]:
        apply = jax.jit(lambda *given: self._network.apply(*given)[0])
        images = batch[0].addressable_data(0)
        outputs = apply(self._engine.parameters(), self._network.statistics, images, jax.random.key(self.job.seed))
        return [np.asarray(head) for head in outputs]

    def leave(self) -> None:
        """All ranks come here together; one that left alone would keep the others at a barrier for a minute."""
        if self._clustered:
            jax.distributed.shutdown()


def speak_on(interface: str) -> None:
    """gloo looks up the host's name otherwise, which may lead out of the machine. JAX has no setting for it, so its own
    function is given the interface; where that is not as expected, gloo decides.
    """
    try:
        from jax._src.lib import _jax

        _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, interface=interface)
    except (ImportError, AttributeError):
        print(f"this JAX cannot be told to use {interface}: it takes the network of the host's name", file=sys.stderr)


def _versions() -> dict[str, str]:
    """Asks no device: a process must have joined its cluster before JAX looks at one."""
    import platform

    import jaxlib

    found = {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    for cuda in ("13", "12"):
        plugin = _version_of(f"jax-cuda{cuda}-plugin")
        if plugin:
            parts = {part: _version_of(f"nvidia-{part}-cu{cuda}") for part in ("cudnn", "nccl")}
            found.update({"jax-cuda-plugin": plugin, "cuda": cuda, **{k: v for k, v in parts.items() if v}})
            break
    return found


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
