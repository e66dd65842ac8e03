"""Strategies on JAX's own engines: how a step becomes one compiled program, on one device or on a mesh of processes.

Weights, momentum and what else a step changes are given away to the program (donated), which writes the new ones in
their place.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ...job import Job
from ..base import rates
from .network import Network, storage_dtype

_RANKS = "ranks"  # the mesh's only axis


class LocalEngine:
    """One device, nothing exchanged. ``independent`` is this on every worker.

    ``state`` is what belongs to this rank alone: running statistics, the number of the step for dropout, and where it
    trains to an accuracy the sum of losses and the images labelled right.
    """

    def __init__(self, job: Job, network: Network) -> None:
        self.job = job
        self.network = network
        self._wide = storage_dtype(job.config.precision)
        self._config, self._rates, self._steps = job.config, rates(job), 0
        state = {"statistics": network.statistics, "step": np.zeros((), np.int32)}
        if self._config.trains_epochs:
            state["tally"] = np.zeros(2, np.float32)
        self._parameters, self._momentum, self._state = self._start(state)
        self._rate, self._rate_there = -1.0, None
        self._program = jax.jit(self._step(), donate_argnums=(0, 1, 2))
        self._inference = jax.jit(lambda *given: self.network.apply(*given, None, training=False)[0][0])
        self._gathered: tuple[int, Any] | None = None

    def _start(self, state: Any) -> tuple[Any, Any, Any]:
        """Parameters, momentum and state on the device."""
        parameters = jax.tree.map(_owned, self.network.parameters)
        return parameters, jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(_owned, state)

    def _step(self) -> Any:
        """The function that is compiled: everything of a step, from the images to the new weights."""

        def step(parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
            loss, state, gradients = self._gradients(parameters, state, images, labels, self.job.rank)
            return *self._sgd(parameters, momentum, gradients, rate), state, loss

        return step

    def _gradients(self, parameters: Any, state: Any, images: jax.Array, labels: jax.Array, rank: Any) -> Any:
        """This rank's loss, its new state, and the gradients of its own images."""
        key = None
        if self.network.random:  # differs between ranks and steps
            key = jax.random.fold_in(jax.random.key(self.job.seed + rank), state["step"])

        def losses(parameters: Any) -> tuple[jax.Array, Any]:
            outputs, statistics = self.network.apply(parameters, state["statistics"], images, key)
            heads = (self._cross_entropy(logits, labels) for logits in outputs)
            loss = sum(weight * one for weight, one in zip(self.network.loss_weights, heads))
            return loss, (statistics, outputs[0])

        (loss, (statistics, logits)), gradients = jax.value_and_grad(losses, has_aux=True)(parameters)
        after = {"statistics": statistics, "step": state["step"] + 1}
        if "tally" in state:
            right = (logits.argmax(1) == labels).sum()
            after["tally"] = state["tally"] + jnp.stack([loss.astype(np.float32), right.astype(np.float32)])
        return loss, after, gradients

    def _cross_entropy(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        logarithms = jax.nn.log_softmax(logits.astype(self._wide))
        return -jnp.take_along_axis(logarithms, labels[:, None], axis=1).mean()

    def _sgd(self, parameters: Any, momentum: Any, gradients: Any, rate: Any) -> tuple[Any, Any]:
        """As PyTorch does it, with weight decay on every parameter."""
        keep, decay = self._config.momentum, self._config.weight_decay
        momentum = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)
        return jax.tree.map(lambda w, v: w - rate * v, parameters, momentum), momentum

    def place(self, array: np.ndarray) -> jax.Array:
        """This rank's part of a batch, on its device."""
        return jax.device_put(array)

    def adopt(self, array: jax.Array) -> jax.Array:
        """The same for what is on this rank's device already."""
        return array

    def step(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """Enqueues a step; the loss is there when all of the program is."""
        rate = self._rates(self._steps)
        if rate != self._rate:
            self._rate, self._rate_there = rate, self._everywhere(np.asarray(rate, self._wide))
        self._parameters, self._momentum, self._state, loss = self._program(
            self._parameters, self._momentum, self._state, images, labels, self._rate_there
        )
        self._steps += 1
        return loss

    def tally(self) -> Any:
        """What the state counted since the last call."""
        found = _own(self._state["tally"]).ravel()
        self._state["tally"] = self._zeros(np.zeros(2, np.float32))
        return found

    def _everywhere(self, array: np.ndarray) -> jax.Array:
        """The same on every rank."""
        return jax.device_put(array)

    def _zeros(self, array: np.ndarray) -> jax.Array:
        """Of this rank alone, as the state holds it."""
        return _owned(array)

    def predict(self, images: jax.Array) -> np.ndarray:
        """The first head's logits of this rank's images, by the running statistics. Weights that are spread over the
        ranks are gathered once for all images that are tried between two steps.
        """
        if self._gathered is None or self._gathered[0] != self._steps:
            statistics = jax.tree.map(lambda array: self._alone(_own(array)), self._state["statistics"])
            self._gathered = self._steps, (jax.tree.map(jax.device_put, self.parameters()), statistics)
        return np.asarray(self._inference(*self._gathered[1], images.addressable_data(0)), np.float32)

    def _alone(self, array: np.ndarray) -> np.ndarray:
        """This rank's own part of what the state holds, without the axis along which ranks lie."""
        return array

    def parameters(self) -> Any:
        """Whole, as numpy arrays: copies, because the next step writes over what lies on a CPU."""
        return jax.tree.map(np.array, self._parameters)


class AllreduceEngine(LocalEngine):
    """The same program on every process of a mesh, the batch split over them, gradients averaged.

    shard_map and not jit's own partitioning: that would make batch norm synchronous, and exchange more than gradients.
    """

    in_mesh = P()  # parameters and momentum: a whole copy on every rank

    def _start(self, state: Any) -> tuple[Any, Any, Any]:
        one_each = {device.process_index: device for device in reversed(jax.devices())}
        self._mesh = Mesh(np.array([one_each[rank] for rank in range(self.job.workers)]), (_RANKS,))
        parameters = self._layout()
        momentum = jax.tree.map(np.zeros_like, parameters)
        return *(jax.tree.map(self._share, tree) for tree in (parameters, momentum)), jax.tree.map(self._keep, state)

    def _layout(self) -> Any:
        """The parameters as the mesh holds them."""
        return self.network.parameters

    def _share(self, array: np.ndarray) -> jax.Array:
        """Each process has the whole array and puts its own part of it on its device."""
        sharding = NamedSharding(self._mesh, self.in_mesh)
        return jax.make_array_from_callback(array.shape, sharding, lambda part: _owned(array[part]))

    def _keep(self, array: np.ndarray) -> jax.Array:
        """One such array for every rank, each its own, along a first axis."""
        sharding = NamedSharding(self._mesh, P(_RANKS))
        shape = (self.job.workers, *array.shape)
        return jax.make_array_from_callback(shape, sharding, lambda part: _owned(array[None]))

    def place(self, array: np.ndarray) -> jax.Array:
        sharding = NamedSharding(self._mesh, P(_RANKS))
        return jax.make_array_from_process_local_data(sharding, array)

    def _step(self) -> Any:
        def on_rank(parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
            own = jax.tree.map(lambda array: array[0], state)
            parameters, momentum, own, loss = self._exchange(parameters, momentum, own, images, labels, rate)
            return parameters, momentum, jax.tree.map(lambda array: array[None], own), loss[None]

        held, split = self.in_mesh, P(_RANKS)
        return jax.shard_map(
            on_rank,
            mesh=self._mesh,
            in_specs=(held, held, split, split, split, P()),
            out_specs=(held, held, split, split),
            check_vma=False,
        )

    def _everywhere(self, array: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(array.shape, NamedSharding(self._mesh, P()), lambda part: array[part])

    def _zeros(self, array: np.ndarray) -> jax.Array:
        return self._keep(array)

    def _alone(self, array: np.ndarray) -> np.ndarray:
        return array[0]

    def adopt(self, array: jax.Array) -> jax.Array:
        shape = (self.job.workers * array.shape[0], *array.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, P(_RANKS)), [array])

    def _exchange(self, parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
        loss, state, gradients = self._gradients(parameters, state, images, labels, lax.axis_index(_RANKS))
        # One vector: on a CPU the sixty tensors of a ResNet-18, one by one, take twice the step.
        flat = _Flat(gradients)
        gradients = flat.tree(lax.pmean(flat.vector(gradients), _RANKS))
        return *self._sgd(parameters, momentum, gradients, rate), state, loss


class ShardedEngine(AllreduceEngine):
    """Each rank keeps its share of one long vector of parameters, and of momentum. It gathers the parameters for a
    step, and is given the averaged gradients of its share.
    """

    in_mesh = P(_RANKS)

    def _layout(self) -> np.ndarray:
        self._flat = _Flat(self.network.parameters)
        vector = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(self.network.parameters)])
        self._padding = -len(vector) % self.job.workers  # every share is as long as the others
        return np.pad(vector, (0, self._padding))

    def _exchange(self, shard: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
        parameters = self._flat.tree(lax.all_gather(shard, _RANKS, tiled=True))
        loss, state, gradients = self._gradients(parameters, state, images, labels, lax.axis_index(_RANKS))
        vector = jnp.pad(self._flat.vector(gradients), (0, self._padding))
        gradient = lax.psum_scatter(vector, _RANKS, tiled=True) / self.job.workers
        return *self._sgd(shard, momentum, gradient, rate), state, loss

    def parameters(self) -> Any:
        whole = jax.jit(lambda shards: shards, out_shardings=NamedSharding(self._mesh, P()))(self._parameters)
        return self._flat.tree(np.array(whole))


class _Flat:
    """Between a tree of arrays and one vector. What is behind the last array in a vector is padding."""

    def __init__(self, tree: Any) -> None:
        leaves, self._structure = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._ends = np.cumsum([leaf.size for leaf in leaves]).tolist()

    def vector(self, tree: Any) -> jax.Array:
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def tree(self, vector: Any) -> Any:
        starts = [0, *self._ends[:-1]]
        parts = [vector[a:b].reshape(shape) for a, b, shape in zip(starts, self._ends, self._shapes)]
        return jax.tree.unflatten(self._structure, parts)


def _own(array: jax.Array) -> np.ndarray:
    """What of an array is on this rank's device."""
    return np.array(array.addressable_data(0))


def _owned(array: np.ndarray) -> jax.Array:
    """On the device, and JAX's own: what only borrows numpy's memory could not be given away."""
    return jnp.array(array, copy=True)


def engine_for(job: Job, network: Network) -> LocalEngine:
    engines = {
        "local": LocalEngine,
        "independent": LocalEngine,
        "allreduce": AllreduceEngine,
        "sharded": ShardedEngine,
    }
    return engines[job.config.strategy](job, network)
