"""JAX: devices, precision, layout, and strategies in which several processes train one network.

Every step is one program, with --compile or without, which is compiled in the first step; on
several processes it is the same over a mesh of them. What a step changes is donated to the
program, which writes the new values in its place.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ...config import Config
from ...job import Job
from ...sample import describe_compilation
from ...type_aliases import NamedArrays
from ..base import Adapter, learning_rate_schedule, list_common_versions
from . import network as networks
from .network import JaxNetwork

_NEEDED = "/jax/core/compile/backend_compile_duration"  # also of a program that the cache had
_CACHED = "/jax/compilation_cache/cache_hits"
_RANKS = "ranks"  # the only axis of a mesh
_SAME, _SPLIT = P(), P(_RANKS)  # every rank has a copy, or a part along the first axis


class JaxAdapter(Adapter):
    """One device without communication. ``independent`` is this on every worker.

    ``_state`` is what belongs to this rank alone: running statistics, the number of the step, for
    dropout its seed and whether it is on, and of epochs the losses and the correct predictions.
    """

    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.cuda = job.device.kind == "cuda"
        # JAX returns before a step is done. Two in flight keep a GPU's queue filled.
        self.lag = 2 if self.cuda else 1
        self._wide = networks.choose_storage_dtype(job.config.precision)
        self._image_dtype = networks.choose_compute_dtype(job.config.precision)
        self._convert_pixels: Any = None
        self._events: Counter[str] = Counter()
        monitoring = jax.monitoring
        monitoring.register_event_listener(lambda event, **_: self._events.update([event]))
        monitoring.register_event_duration_secs_listener(lambda event, *_, **__: self._events.update([event]))
        let_every_rank_write()

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Query no device: a process must join its cluster before JAX initialises one."""
        own = {"jax": jax.__version__, "jaxlib": metadata.version("jaxlib")}
        versions = {**own, **list_common_versions()}
        for cuda in ("13", "12"):
            plugin = _find_version(f"jax-cuda{cuda}-plugin")
            if plugin:
                parts = {part: _find_version(f"nvidia-{part}-cu{cuda}") for part in ("cudnn", "nccl")}
                found = {part: version for part, version in parts.items() if version}
                return {**versions, "jax-cuda-plugin": plugin, "cuda": cuda, **found}
        return versions

    @classmethod
    def gpus(cls) -> list[str]:
        return [device.device_kind for device in jax.devices() if device.platform == "gpu"]

    @classmethod
    def try_model(cls, config: Config) -> int:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            network = networks.build_foreign(config, seed=0)
            networks.trace(network, config)
        return network.parameter_count

    def build(self) -> int:
        self.network = self._build_network()
        self._rates, self._steps = learning_rate_schedule(self.job), 0
        self._place_rate = functools.lru_cache(1)(self._place_rate)  # it seldom changes
        self._gathered: tuple[int, Any] | None = None
        state = {"statistics": self.network.statistics, "step": np.zeros((), np.int32)}
        if self.network.random:
            seed = (self.job.seed + self.job.rank) % (1 << 32)  # differs between ranks
            state.update(dropping=np.ones((), np.float32), seed=np.asarray(seed, np.uint32))
        if self.config.trains_epochs:
            state["tally"] = np.zeros(2, np.float32)
        self._state = jax.tree.map(self._place_state, state)
        self._parameters = self._place_parameters(self.network.parameters)
        self._momentum = self._make_momentum()
        self._program = jax.jit(self._make_program(), donate_argnums=(0, 1, 2))
        self._inference = jax.jit(lambda *inputs: self.network.apply(*inputs, None, training=False)[0][0])
        return self.network.parameter_count

    def _place_rate(self, rate: float) -> jax.Array:
        return self._share(jax.device_put(np.asarray(rate, self._wide)), _SAME)

    def _build_network(self) -> JaxNetwork:
        return networks.build(self.config, self.job.seed, self.job.dropout)

    def _make_momentum(self) -> Any:
        return self._place_parameters(jax.tree.map(np.zeros_like, self.network.parameters))

    def _place_parameters(self, parameters: Any) -> Any:
        return jax.tree.map(lambda array: self._share(copy_to_device(array), _SAME), parameters)

    def _place_state(self, array: np.ndarray) -> jax.Array:
        return copy_to_device(array)

    def _share(self, part: jax.Array, spec: P = _SPLIT) -> jax.Array:
        """Return the array of all ranks, of which ``part`` is this rank's."""
        return part

    def _make_program(self) -> Any:
        return self._train

    def _train(
        self, parameters: Any, momentum: Any, state: Any, images: jax.Array, labels: jax.Array, rate: Any
    ) -> Any:
        """Take a step. Return new parameters, momentum and state, and the loss."""
        key = None
        if self.network.random:
            key = jax.random.fold_in(jax.random.key(state["seed"]), state["step"])

        def compute_loss(parameters: Any) -> tuple[jax.Array, Any]:
            dropping = state.get("dropping", 1.0)
            heads, statistics = self.network.apply(parameters, state["statistics"], images, key, dropping=dropping)
            return self._criterion(heads, labels), (statistics, heads[0])

        backward = jax.value_and_grad(compute_loss, has_aux=True)
        (loss, (statistics, logits)), gradients = backward(self._gather(parameters))
        after = {**state, "statistics": statistics, "step": state["step"] + 1}
        if "tally" in state:
            correct = (logits.argmax(1) == labels).sum()
            counts = [loss.astype(np.float32), correct.astype(np.float32)]
            after["tally"] = state["tally"] + jnp.stack(counts)
        return *self._sgd(parameters, momentum, self._average(gradients), rate), after, loss

    def _gather(self, parameters: Any) -> Any:
        return parameters

    def _average(self, gradients: Any) -> Any:
        return gradients

    def _criterion(self, heads: Any, labels: jax.Array) -> Any:
        losses = []
        for logits in heads:
            logarithms = jax.nn.log_softmax(logits.astype(self._wide))
            losses.append(-jnp.take_along_axis(logarithms, labels[:, None], axis=1).mean())
        return sum(weight * loss for weight, loss in zip(self.network.loss_weights, losses))

    def _sgd(self, parameters: Any, momentum: Any, gradients: Any, rate: Any) -> tuple[Any, Any]:
        keep, decay = self.config.momentum, self.config.weight_decay
        momentum = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)
        return jax.tree.map(lambda w, v: w - rate * v, parameters, momentum), momentum

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, ...]:
        if self.config.layout == "nhwc":
            images = images.transpose(0, 2, 3, 1)
        arrays = np.ascontiguousarray(images.astype(self._image_dtype)), labels.astype(np.int32)
        return tuple(self._share(jax.device_put(array)) for array in arrays)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[jax.Array, ...]:
        """Send the 8-bit pixels, a quarter of the bytes."""
        if self._convert_pixels is None:
            values = (normalization.factors, normalization.offsets)
            factors, offsets = (np.array(channels, np.float32)[:, None, None] for channels in values)

            def convert(pixels: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
                images = pixels * factors + offsets
                images = images.transpose(0, 2, 3, 1) if self.config.layout == "nhwc" else images
                return images.astype(self._image_dtype), labels

            self._convert_pixels = jax.jit(convert)
        # One call for both: a call costs the host as much as the transfer.
        placed = self._convert_pixels(pixels, labels.astype(np.int32))
        return tuple(self._share(array) for array in placed)

    def step(self, batch: tuple[jax.Array, ...]) -> jax.Array:
        rate = self._rates(self._steps)
        self._parameters, self._momentum, self._state, self._loss = self._program(
            self._parameters, self._momentum, self._state, *batch, self._place_rate(rate)
        )
        self._steps += 1
        return self._loss

    def wait(self, ticket: jax.Array | None) -> None:
        if ticket is not None:  # all outputs of a program are ready together
            ticket.block_until_ready()

    def loss(self) -> float:
        return float(copy_local_part(self._loss).item())

    def tally(self) -> tuple[float, int]:
        losses, correct = self._read_state()["tally"]
        self._state["tally"] = self._place_state(np.zeros(2, np.float32))
        return float(losses), int(correct)

    def predict(self, batch: tuple[jax.Array, ...]) -> Any:
        # Sharded weights are gathered once between two steps.
        if self._gathered is None or self._gathered[0] != self._steps:
            on_host = self._gather_parameters(), self._read_state()["statistics"]
            self._gathered = self._steps, jax.device_put(on_host)
        return np.asarray(self._inference(*self._gathered[1], batch[0].addressable_data(0)), np.float32)

    def compilation(self) -> str:
        return describe_compilation(self._events[_NEEDED], self._events[_CACHED])

    def device_peak_bytes(self) -> int | None:
        return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] if self.cuda else None

    def weights(self) -> NamedArrays:
        return self.network.canonical(self._gather_parameters())

    def _gather_parameters(self) -> Any:
        # device_get copies all at the same time, but its arrays may share the device's memory.
        return jax.tree.map(np.array, jax.device_get(self._parameters))

    def _read_state(self) -> Any:
        return jax.tree.map(copy_local_part, self._state)

    def set_dropout(self, active: bool) -> None:
        if "dropping" in self._state:
            self._state["dropping"] = self._place_state(np.asarray(active, np.float32))

    def restore(self, weights: Mapping[str, Any]) -> None:
        self._parameters = self._place_parameters(self.network.native(weights))

    def counted_updates(self) -> int:
        return int(self._read_state()["step"])

    def drain(self) -> None:
        copy_local_part(min(jax.tree.leaves(self._parameters), key=lambda leaf: leaf.size))

    def statistics(self) -> NamedArrays:
        statistics = {}
        for name, pair in self._read_state()["statistics"].items():
            statistics[f"{name}.mean"], statistics[f"{name}.variance"] = pair
        return statistics

    def drop(self, layer: str, values: Any) -> Any:
        key, dropping = jax.random.key(self.job.seed), self._read_state().get("dropping", 1.0)
        own = self.catalogue_graph.layer(layer)
        return np.asarray(networks.dropout(own, jnp.asarray(values), key, dropping))

    def macs(self) -> int:
        return networks.count_macs(self.network, self.config)

    def logits(self, batch: tuple[jax.Array, ...]) -> list[Any]:
        state, key = self._read_state(), jax.random.key(self.job.seed)
        dropping = state.get("dropping", 1.0)
        apply = jax.jit(lambda *inputs: self.network.apply(*inputs, dropping=dropping)[0])
        heads = apply(self._gather_parameters(), state["statistics"], batch[0].addressable_data(0), key)
        return [np.asarray(head) for head in heads]


class JaxAllreduceAdapter(JaxAdapter):
    """The same program on every process of a mesh, on a part of the batch each.

    It uses shard_map and not jit's own partitioning, which would make batch norm synchronous.
    What belongs to one rank has a first axis that is split over the ranks.
    """

    parameters_spec = _SAME  # and that of momentum

    def join(self) -> None:
        job = self.job
        if job.workers > 1:
            if job.interface and not self.cuda:
                use_interface(job.interface)
            address = f"{job.coordinator}:{job.port}"
            is_bound = job.interface or job.coordinator.startswith("127.")
            jax.distributed.initialize(
                coordinator_address=address,
                num_processes=job.workers,
                process_id=job.rank,
                cluster_detection_method="deactivate",  # a scheduler may describe something else
                coordinator_bind_address=address if is_bound else None,
            )
        self.make_mesh()

    def make_mesh(self) -> None:
        # The first device of each process.
        devices = {device.process_index: device for device in reversed(jax.devices())}
        self._mesh = Mesh(np.array([devices[rank] for rank in range(self.job.workers)]), (_RANKS,))

    def leave(self) -> None:
        # One rank alone would keep the others at a barrier for a minute.
        if self.job.workers > 1:
            jax.distributed.shutdown()

    def _place_state(self, array: np.ndarray) -> jax.Array:
        return self._share(copy_to_device(array[None]))

    def _read_state(self) -> Any:
        return jax.tree.map(lambda array: array[0], super()._read_state())

    def _share(self, part: jax.Array, spec: P = _SPLIT) -> jax.Array:
        shape = part.shape if spec == _SAME else (self.job.workers * part.shape[0], *part.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, spec), [part])

    def _make_program(self) -> Any:
        def train(parameters: Any, momentum: Any, state: Any, *inputs: Any) -> Any:
            own = jax.tree.map(lambda array: array[0], state)
            parameters, momentum, own, loss = self._train(parameters, momentum, own, *inputs)
            return parameters, momentum, jax.tree.map(lambda array: array[None], own), loss[None]

        changed = (self.parameters_spec, self.parameters_spec, _SPLIT)
        return self._map_over_ranks(train, (*changed, _SPLIT, _SPLIT, _SAME), (*changed, _SPLIT))

    def _map_over_ranks(self, function: Any, inputs: Any, outputs: Any) -> Any:
        specs = {"in_specs": inputs, "out_specs": outputs}
        return jax.shard_map(function, mesh=self._mesh, check_vma=False, **specs)

    def _average(self, gradients: Any) -> Any:
        # As one vector: on a CPU, the tensors of a ResNet-18 one by one double the time of a step.
        vector, unravel = ravel_pytree(gradients)
        return unravel(lax.pmean(vector, _RANKS))

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        gradients = self._place_state(np.full(max(1, size // 4), 1e-20, np.float32))  # no value is zero
        average = jax.jit(self._map_over_ranks(lambda part: lax.pmean(part, _RANKS), _SPLIT, _SPLIT))

        def exchange() -> None:
            average(gradients).block_until_ready()

        exchange()  # compiles it
        return exchange


class JaxShardedAdapter(JaxAllreduceAdapter):
    """Each rank holds its share of one long vector of parameters, and of momentum. It gathers the
    parameters for a step and receives the averaged gradients of its share.
    """

    parameters_spec = _SPLIT

    def _place_parameters(self, parameters: Any) -> jax.Array:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            vector, self._unravel = ravel_pytree(parameters)
        self._size = len(vector)
        self._padding = -self._size % self.job.workers  # all shares are of equal length
        shares = np.split(np.pad(vector, (0, self._padding)), self.job.workers)
        return self._share(copy_to_device(shares[self.job.rank]))

    def _gather(self, shard: Any) -> Any:
        return self._unravel(lax.all_gather(shard, _RANKS, tiled=True)[: self._size])

    def _average(self, gradients: Any) -> Any:
        vector = jnp.pad(ravel_pytree(gradients)[0], (0, self._padding))
        return lax.psum_scatter(vector, _RANKS, tiled=True) / self.job.workers

    def drain(self) -> None:
        np.asarray(self._parameters.addressable_data(0)[:1])

    def _gather_parameters(self) -> Any:
        gather = jax.jit(lambda shards: shards, out_shardings=NamedSharding(self._mesh, _SAME))
        whole = gather(self._parameters).addressable_data(0)
        return jax.tree.map(np.array, self._unravel(whole[: self._size]))


def copy_local_part(array: jax.Array) -> np.ndarray:
    return np.array(array.addressable_data(0))


def copy_to_device(array: np.ndarray) -> jax.Array:
    # On a CPU an array may share numpy's memory, which JAX could not donate.
    return jnp.array(array, copy=True) if jax.default_backend() == "cpu" else jax.device_put(array)


def use_interface(interface: str) -> None:
    """Tell gloo which interface to use instead of that of the host's name.

    JAX has no setting for it, so its own function is wrapped. Without that function gloo decides.
    """
    try:
        from jax._src.lib import _jax

        make = _jax.make_gloo_tcp_collectives
        _jax.make_gloo_tcp_collectives = functools.partial(make, interface=interface)
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


def let_every_rank_write() -> None:
    """Have every rank keep its programs, and each file appear complete.

    JAX writes from its process 0 only, but on CPUs the programs of every rank have keys of their
    own, and another host may have another cache. JAX also writes in place, so a part of a program
    would remain for ever if a rank is ended meanwhile. It has no settings for either, so its own
    functions are wrapped. Without those functions it goes on as it is.
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
            return
        with tempfile.TemporaryDirectory(prefix=".", dir=str(cache._path)) as folder:
            path = Path(folder, "program")
            path.write_bytes(value)
            path.replace(Path(str(cache._path), f"{key}-cache"))

    compiler._cache_write = write_as_first
    lru_cache.LRUCache.put = put_complete
