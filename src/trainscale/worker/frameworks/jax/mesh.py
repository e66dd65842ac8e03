"""Strategies in which several JAX processes train one network: a compiled program over a mesh of processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .adapter import JaxAdapter, copy_to_device, use_interface

_RANKS = "ranks"  # the mesh's only axis


class JaxAllreduceAdapter(JaxAdapter):
    """The same program on every process of a mesh. The batch is split over them, and gradients are averaged.

    It uses shard_map and not jit's own partitioning, which would make batch norm synchronous and exchange more than
    gradients.
    """

    weights_spec = P()  # of parameters and momentum: a copy on every rank

    def join(self) -> None:
        job = self.job
        if job.workers == 1:
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

    def leave(self) -> None:
        """Shut down with all ranks together. One alone would keep the others at a barrier for a minute."""
        if self.job.workers > 1:
            jax.distributed.shutdown()

    def _start(self, state: Any) -> tuple[Any, Any, Any]:
        devices = {device.process_index: device for device in reversed(jax.devices())}  # the first of each process
        self._mesh = Mesh(np.array([devices[rank] for rank in range(self.job.workers)]), (_RANKS,))
        parameters = self.network.parameters
        weights = (self._place_parameters(tree) for tree in (parameters, jax.tree.map(np.zeros_like, parameters)))
        return *weights, jax.tree.map(self._place_state, state)

    def _place_parameters(self, parameters: Any) -> Any:
        return jax.tree.map(self._place_weights, parameters)

    def _place_weights(self, array: np.ndarray) -> jax.Array:
        """Put this process's part of an array on its device."""
        sharding = NamedSharding(self._mesh, self.weights_spec)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: copy_to_device(array[part]))

    def _place_state(self, array: np.ndarray) -> jax.Array:
        """Join the arrays of all ranks along a new first axis. Each rank holds its own."""
        sharding = NamedSharding(self._mesh, P(_RANKS))
        shape = (self.job.workers, *array.shape)
        return jax.make_array_from_callback(shape, sharding, lambda part: copy_to_device(array[None]))

    def _put(self, array: np.ndarray) -> jax.Array:
        sharding = NamedSharding(self._mesh, P(_RANKS))
        return jax.make_array_from_process_local_data(sharding, array)

    def _make_step(self) -> Any:
        def on_rank(parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
            own = jax.tree.map(lambda array: array[0], state)
            parameters, momentum, own, loss = self._exchange(parameters, momentum, own, images, labels, rate)
            return parameters, momentum, jax.tree.map(lambda array: array[None], own), loss[None]

        weights, split = self.weights_spec, P(_RANKS)
        return jax.shard_map(
            on_rank,
            mesh=self._mesh,
            in_specs=(weights, weights, split, split, split, P()),
            out_specs=(weights, weights, split, split),
            check_vma=False,
        )

    def _replicate(self, array: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(array.shape, NamedSharding(self._mesh, P()), lambda part: array[part])

    def _read_own(self, array: jax.Array) -> np.ndarray:
        return super()._read_own(array)[0]

    def _adopt(self, array: jax.Array) -> jax.Array:
        shape = (self.job.workers * array.shape[0], *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, P(_RANKS)), [array])

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return make_mesh_exchange(self._mesh, _RANKS, self._place_state(make_gradient(size)))

    def _exchange(self, parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
        loss, state, gradients = self._compute_gradients(parameters, state, images, labels, lax.axis_index(_RANKS))
        # As one vector: on a CPU, the sixty tensors of a ResNet-18 one by one double the time of a step.
        flat = _FlatTree(gradients)
        gradients = flat.unflatten(lax.pmean(flat.flatten(gradients), _RANKS))
        return *self._sgd(parameters, momentum, gradients, rate), state, loss


class JaxShardedAdapter(JaxAllreduceAdapter):
    """Each rank holds its share of one long vector of parameters, and of momentum. It gathers the parameters for a step
    and receives the averaged gradients of its share.
    """

    weights_spec = P(_RANKS)

    def build(self) -> int:
        count = super().build()
        self._first_value = jax.jit(lambda shard: shard[:1])
        self.drain()  # now, so that nothing is compiled when the device is drained after a window
        return count

    def _place_parameters(self, parameters: Any) -> jax.Array:
        self._flat = _FlatTree(parameters)
        vector = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(parameters)])
        self._padding = -len(vector) % self.job.workers  # all shares are of equal length
        return self._place_weights(np.pad(vector, (0, self._padding)))

    def _exchange(self, shard: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
        parameters = self._flat.unflatten(lax.all_gather(shard, _RANKS, tiled=True))
        loss, state, gradients = self._compute_gradients(parameters, state, images, labels, lax.axis_index(_RANKS))
        vector = jnp.pad(self._flat.flatten(gradients), (0, self._padding))
        gradient = lax.psum_scatter(vector, _RANKS, tiled=True) / self.job.workers
        return *self._sgd(shard, momentum, gradient, rate), state, loss

    def drain(self) -> None:
        np.asarray(self._first_value(self._parameters.addressable_data(0)))

    def _gather_parameters(self) -> Any:
        gather = jax.jit(lambda shards: shards, out_shardings=NamedSharding(self._mesh, P()))
        return self._flat.unflatten(np.array(gather(self._parameters)))


def make_gradient(size: int) -> np.ndarray:
    """Return a gradient of that many bytes, in which no value is zero."""
    return np.full(max(1, size // 4), 1e-20, np.float32)


def make_mesh_exchange(mesh: Mesh, axis: str, vectors: jax.Array) -> Callable[[], None]:
    """Return a function that averages the vectors of all ranks, which a first axis joins, as a step averages gradients.

    It is compiled here, before it is timed.
    """
    average = jax.shard_map(
        lambda part: lax.pmean(part, axis), mesh=mesh, in_specs=P(axis), out_specs=P(axis), check_vma=False
    )
    program = jax.jit(average)

    def exchange() -> None:
        program(vectors).block_until_ready()

    exchange()
    return exchange


class _FlatTree:
    """Converts between a tree of arrays and one vector, which may have padding at its end."""

    def __init__(self, tree: Any) -> None:
        leaves, self._structure = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._ends = np.cumsum([leaf.size for leaf in leaves]).tolist()

    def flatten(self, tree: Any) -> jax.Array:
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def unflatten(self, vector: Any) -> Any:
        starts = [0, *self._ends[:-1]]
        parts = [vector[a:b].reshape(shape) for a, b, shape in zip(starts, self._ends, self._shapes)]
        return jax.tree.unflatten(self._structure, parts)
