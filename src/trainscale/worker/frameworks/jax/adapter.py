"""JAX: devices, precision, layout of images, and a step as one compiled program on one device. Strategies of several
processes are in mesh.py.

Every step is one compiled program, with --compile or without. It is compiled in the first step. Weights, momentum and
what else a step changes are donated to the program, which writes the new values in their place.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...compiled_programs import describe_state
from ...config import Config
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, learning_rate_schedule, list_common_versions
from . import network as networks

_NEEDED = "/jax/core/compile/backend_compile_duration"  # also of a program that the cache had
_CACHED = "/jax/compilation_cache/cache_hits"


class JaxAdapter(Adapter, Proof):
    """One device without communication. ``independent`` is this on every worker.

    ``_state`` is what belongs to this rank alone: running statistics, the number of the step for dropout, whether
    dropout is on and, where it trains epochs, the sum of losses and the number of correct predictions.
    """

    switches_dropout = True
    restores_weights = True
    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda"
        # JAX returns before a step is done. Two in flight keep a GPU's queue filled; on a CPU one is enough.
        self.lag = 2 if self.cuda else 1
        self._wide = networks.choose_storage_dtype(job.config.precision)
        self._convert_pixels: Any = None
        self._restored: tuple[Mapping[str, Any], Any] | None = None
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
            networks.trace(network, config)
        return network.parameter_count

    def join(self) -> None:
        """Do nothing: there is nobody to join."""

    def build(self) -> int:
        job, config = self.job, self.config
        self.network = networks.build(config, job.seed, job.dropout)
        self._rates, self._steps = learning_rate_schedule(job), 0
        state = {"statistics": self.network.statistics, "step": np.zeros((), np.int32)}
        if self.network.random:
            state["dropping"] = np.ones((), np.float32)
        if config.trains_epochs:
            state["tally"] = np.zeros(2, np.float32)
        self._parameters, self._momentum, self._state = self._start(state)
        self._rate, self._device_rate = -1.0, None
        self._program = jax.jit(self._make_step(), donate_argnums=(0, 1, 2))
        self._inference = jax.jit(lambda *inputs: self.network.apply(*inputs, None, training=False)[0][0])
        self._gathered: tuple[int, Any] | None = None
        return self.network.parameter_count

    def _start(self, state: Any) -> tuple[Any, Any, Any]:
        """Return parameters, momentum and state on the device."""
        parameters = self._place_parameters(self.network.parameters)
        return parameters, jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(copy_to_device, state)

    def _place_parameters(self, parameters: Any) -> Any:
        """Return copies on the device."""
        return jax.tree.map(copy_to_device, parameters)

    def _make_step(self) -> Any:
        """Return the function that is compiled: a whole step, from the images to the new weights."""

        def step(parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
            loss, state, gradients = self._compute_gradients(parameters, state, images, labels, self.job.rank)
            return *self._sgd(parameters, momentum, gradients, rate), state, loss

        return step

    def _compute_gradients(self, parameters: Any, state: Any, images: jax.Array, labels: jax.Array, rank: Any) -> Any:
        """Return this rank's loss, its new state, and the gradients of its own images."""
        key = None
        if self.network.random:  # the key differs between ranks and steps
            key = jax.random.fold_in(jax.random.key(self.job.seed + rank), state["step"])

        def losses(parameters: Any) -> tuple[jax.Array, Any]:
            dropping = state.get("dropping", 1.0)
            outputs, statistics = self.network.apply(parameters, state["statistics"], images, key, dropping=dropping)
            heads = (self._cross_entropy(logits, labels) for logits in outputs)
            loss = sum(weight * head_loss for weight, head_loss in zip(self.network.loss_weights, heads))
            return loss, (statistics, outputs[0])

        (loss, (statistics, logits)), gradients = jax.value_and_grad(losses, has_aux=True)(parameters)
        after = {**state, "statistics": statistics, "step": state["step"] + 1}
        if "tally" in state:
            correct = (logits.argmax(1) == labels).sum()
            after["tally"] = state["tally"] + jnp.stack([loss.astype(np.float32), correct.astype(np.float32)])
        return loss, after, gradients

    def _cross_entropy(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        logarithms = jax.nn.log_softmax(logits.astype(self._wide))
        return -jnp.take_along_axis(logarithms, labels[:, None], axis=1).mean()

    def _sgd(self, parameters: Any, momentum: Any, gradients: Any, rate: Any) -> tuple[Any, Any]:
        """Update as PyTorch does, with weight decay on every parameter."""
        keep, decay = self.config.momentum, self.config.weight_decay
        momentum = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)
        return jax.tree.map(lambda w, v: w - rate * v, parameters, momentum), momentum

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        if self.config.layout == "nhwc":
            images = images.transpose(0, 2, 3, 1)
        images = np.ascontiguousarray(images.astype(networks.choose_compute_dtype(self.config.precision)))
        return self._put(images), self._put(labels.astype(np.int32))

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[jax.Array, jax.Array]:
        """Send the 8-bit pixels, a quarter of the bytes of 32-bit numbers."""
        if self._convert_pixels is None:
            dtype = networks.choose_compute_dtype(self.config.precision)
            values = (normalization.factors, normalization.offsets)
            factors, offsets = (np.array(channels, np.float32)[:, None, None] for channels in values)

            def convert(pixels: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
                images = pixels * factors + offsets
                return (images.transpose(0, 2, 3, 1) if self.config.layout == "nhwc" else images).astype(dtype), labels

            self._convert_pixels = jax.jit(convert)
        # One call for both, because a call costs the host as much as the transfer of its arrays.
        return tuple(self._adopt(array) for array in self._convert_pixels(pixels, labels.astype(np.int32)))

    def _put(self, array: np.ndarray) -> jax.Array:
        """Put this rank's part of a batch on its device."""
        return jax.device_put(array)

    def _adopt(self, array: jax.Array) -> jax.Array:
        """Return this rank's part of a batch, which is on its device already, as ``step`` takes it."""
        return array

    def step(self, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Enqueue a step. Its loss is ready when the whole program is done."""
        rate = self._rates(self._steps)
        if rate != self._rate:
            self._rate, self._device_rate = rate, self._replicate(np.asarray(rate, self._wide))
        self._parameters, self._momentum, self._state, self._loss = self._program(
            self._parameters, self._momentum, self._state, *batch, self._device_rate
        )
        self._steps += 1
        return self._loss

    def wait(self, ticket: jax.Array | None) -> None:
        """Wait for the loss. All outputs of a program, so the weights too, are ready together."""
        if ticket is not None:
            ticket.block_until_ready()

    def loss(self) -> float:
        return float(copy_local_part(self._loss).item())

    def tally(self) -> tuple[float, int]:
        losses, correct = copy_local_part(self._state["tally"]).ravel()
        self._state["tally"] = self._place_state(np.zeros(2, np.float32))
        return float(losses), int(correct)

    def predict(self, batch: tuple[jax.Array, jax.Array]) -> Any:
        """Predict with the running statistics. Sharded weights are gathered once between two steps."""
        if self._gathered is None or self._gathered[0] != self._steps:
            statistics = jax.tree.map(self._read_own, self._state["statistics"])
            self._gathered = self._steps, (jax.tree.map(jax.device_put, self._gather_parameters()), statistics)
        return np.asarray(self._inference(*self._gathered[1], batch[0].addressable_data(0)), np.float32)

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return read_gpu_peak_bytes() if self.cuda else None

    def weights(self) -> NamedArrays:
        return self.network.canonical(self._gather_parameters())

    def _gather_parameters(self) -> Any:
        """Return the gathered parameters as numpy arrays, which the next step does not overwrite."""
        on_host = jax.device_get(self._parameters)  # copies all of them at the same time
        return on_host if _copies_to_device() else jax.tree.map(np.array, on_host)

    def set_dropout(self, active: bool) -> None:
        if "dropping" in self._state:
            self._state["dropping"] = self._place_state(np.asarray(active, np.float32))

    def _read_dropping(self) -> float:
        """Return 1, or 0 while dropout is switched off."""
        return float(self._read_own(self._state["dropping"])) if "dropping" in self._state else 1.0

    def restore(self, weights: Mapping[str, Any]) -> None:
        if self._restored is None or self._restored[0] is not weights:  # closing steps restore the same weights again
            self._restored = weights, self.network.native(weights)
        self._parameters = self._place_parameters(self._restored[1])

    def counted_updates(self) -> int:
        """Return the number that the compiled program has counted."""
        return int(self._read_own(self._state["step"]))

    def drain(self) -> None:
        """Copy the smallest parameter to the host. All outputs of a program are ready together."""
        copy_local_part(min(jax.tree.leaves(self._parameters), key=lambda leaf: leaf.size))

    def statistics(self) -> NamedArrays:
        values = {}
        for name, pair in self._state["statistics"].items():
            for kind, array in zip(("mean", "variance"), pair):
                values[f"{name}.{kind}"] = self._read_own(array)
        return values

    def _replicate(self, array: np.ndarray) -> jax.Array:
        """Put an array, which is the same on every rank, on the devices."""
        return jax.device_put(array)

    def _place_state(self, array: np.ndarray) -> jax.Array:
        """Put an array of this rank alone on its device, as the state holds it."""
        return copy_to_device(array)

    def _read_own(self, array: jax.Array) -> np.ndarray:
        """Return this rank's part of a state array."""
        return copy_local_part(array)

    def drop(self, layer: str, values: Any) -> Any:
        options = self.catalogue_graph.layer(layer)
        key = jax.random.key(self.job.seed)
        return np.asarray(networks.dropout(options, jnp.asarray(values), key, self._read_dropping()))

    def macs(self) -> int:
        return networks.count_macs(self.network, self.config)

    def logits(self, batch: tuple[jax.Array, jax.Array]) -> list[Any]:
        dropping = self._read_dropping()
        apply = jax.jit(lambda *inputs: self.network.apply(*inputs, dropping=dropping)[0])
        inputs = self._gather_parameters(), self.network.statistics, batch[0].addressable_data(0)
        return [np.asarray(head) for head in apply(*inputs, jax.random.key(self.job.seed))]


def copy_local_part(array: jax.Array) -> np.ndarray:
    """Return the part of an array that is on this rank's device."""
    return np.array(array.addressable_data(0))


def copy_to_device(array: np.ndarray) -> jax.Array:
    """Copy an array to the device. JAX could not donate what only borrows numpy's memory."""
    return jax.device_put(array) if _copies_to_device() else jnp.array(array, copy=True)


def _copies_to_device() -> bool:
    """Return whether the device has memory of its own. A CPU's arrays may share memory with numpy's."""
    return jax.default_backend() != "cpu"


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


class ProgramCounter:
    """Counts the programs that this process has needed, and those that the cache had."""

    def __init__(self) -> None:
        self._needed = self._cached = 0
        jax.monitoring.register_event_listener(self._count_cached)
        jax.monitoring.register_event_duration_secs_listener(self._count_needed)

    def describe(self) -> str:
        return describe_state(self._needed, self._cached)

    def _count_cached(self, event: str, **_: Any) -> None:
        self._cached += event == _CACHED

    def _count_needed(self, event: str, _seconds: float, **_: Any) -> None:
        self._needed += event == _NEEDED


def let_every_rank_write() -> None:
    """Have every rank keep its programs, and each file appear complete.

    JAX writes from its process 0 only. But on CPUs the programs of every rank have keys of their own, and another host
    may have another cache. JAX also writes files in place: if a rank is ended meanwhile, a part of a program would
    remain forever. JAX has no settings for either, so its own functions are wrapped; if this JAX does not have them,
    it goes on as it is.
    """
    try:
        from jax._src import compiler, distributed, lru_cache

        write, state, put = compiler._cache_write, distributed.global_state, lru_cache.LRUCache.put
    except (ImportError, AttributeError):
        print("in this JAX only rank 0 keeps its compiled programs", file=sys.stderr)
        return

    def write_as_first(*arguments: Any, **options: Any) -> None:
        process_id, state.process_id = state.process_id, 0
        try:
            write(*arguments, **options)
        finally:
            state.process_id = process_id

    def put_complete(cache: Any, key: str, value: bytes) -> None:
        if cache.eviction_enabled:  # then JAX uses a lock
            put(cache, key, value)
        else:
            _write_file(os.path.join(str(cache._path), f"{key}-cache"), value)  # noqa: PTH118

    compiler._cache_write = write_as_first
    lru_cache.LRUCache.put = put_complete


def _write_file(path: str, content: bytes) -> None:
    """Write a file so that other processes see all of it or nothing."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))  # noqa: PTH120
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)  # noqa: PTH105
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise
