"""Keras on JAX: a jitted step on the model's stateless form. keras.distribution places everything for several ranks.

Under keras.distribution alone a jitted step would normalize over the images of all ranks. Here, as in every other
framework, each rank normalizes over its own: the step runs in a shard_map over the distribution's mesh, and the state
that belongs to one rank (batch-norm statistics, seeds, counts) has a leading axis that is split over the ranks.
Gradients are averaged as one long vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import keras
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from ...job import Job
from ..base import list_heads
from ..jax.adapter import (
    ProgramCounter,
    copy_local_part,
    let_every_rank_write,
    list_gpu_names,
    read_gpu_peak_bytes,
    use_interface,
)
from ..jax.mesh import make_gradient, make_mesh_exchange
from . import network as networks
from .adapter import KerasAdapter

# Sum of losses and number of correct predictions since the last call of tally().
_NO_TALLY = np.zeros(2, np.float32)


class KerasJAXAdapter(KerasAdapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # Calls return before a step is done. Two in flight keep a GPU's queue filled; on a CPU one is enough.
        self.lag = 2 if job.device.kind == "cuda" else 1
        self._distribution: keras.distribution.DataParallel | None = None
        self._programs = ProgramCounter()
        let_every_rank_write()

    @classmethod
    def gpus(cls) -> list[str]:
        return list_gpu_names()

    def join(self) -> None:
        job = self.job
        if job.config.strategy != "allreduce":
            return
        if job.interface and job.device.kind == "cpu":
            use_interface(job.interface)
        keras.utils.set_random_seed(job.seed)  # otherwise Keras would agree on a seed by a collective
        keras.distribution.initialize(f"{job.coordinator}:{job.port}", job.workers, job.rank)
        self._distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        keras.distribution.set_distribution(self._distribution)

    def prepare(self) -> None:
        self._optimizer = self.sgd()
        states = self.make_random_states()
        others = self._model.non_trainable_variables
        own = [states.get(variable.path, np.asarray(variable.value)) for variable in others]
        if self.config.trains_epochs:
            own.append(_NO_TALLY)
        step, forward = self._step, self._forward
        if self._distribution is not None:
            step, forward = self._map_over_ranks()
        self._state = (
            [variable.value for variable in self._model.trainable_variables],
            [self._place_own_array(values) for values in own],
            [variable.value for variable in self._optimizer.variables],
        )
        paths = [variable.path for variable in self._optimizer.variables]
        self._rate_index = paths.index(self._optimizer.learning_rate.path)
        self._count_index = paths.index(self._optimizer.iterations.path)
        self._jitted = jax.jit(step, donate_argnums=(0, 1, 2))
        self._jitted_forward = jax.jit(forward)
        self._inference = jax.jit(self._predict_first_head)
        self._prediction_state: tuple[int, Any] | None = None

    def _map_over_ranks(self) -> tuple[Any, Any]:
        """Return the step and the forward pass of all ranks at once."""
        mesh, split = self._distribution.device_mesh.backend_mesh, self._split

        def step(trainable: Any, own: Any, optimizer: Any, images: Any, labels: Any) -> Any:
            trainable, own, optimizer, loss = self._step(
                trainable, [values[0] for values in own], optimizer, images, labels
            )
            return trainable, [values[None] for values in own], optimizer, loss[None]

        def forward(trainable: Any, own: Any, images: Any) -> Any:
            return self._forward(trainable, [values[0] for values in own], images)

        same = Spec()
        return (
            jax.shard_map(
                step,
                mesh=mesh,
                in_specs=(same, split, same, split, split),
                out_specs=(same, split, same, split),
                check_vma=False,
            ),
            jax.shard_map(forward, mesh=mesh, in_specs=(same, split, split), out_specs=split, check_vma=False),
        )

    @property
    def _split(self) -> Spec:
        return Spec(self._distribution.batch_dim_name)

    def _place_split_array(self, values: Any) -> jax.Array:
        """Give this rank's part of an array whose first axis is split over the ranks."""
        sharding = NamedSharding(self._distribution.device_mesh.backend_mesh, self._split)
        return jax.make_array_from_process_local_data(sharding, values)

    def _place_own_array(self, values: Any) -> jax.Array:
        """Copy an array of this rank alone to the device, as the state holds it."""
        return jax.numpy.array(values) if self._distribution is None else self._place_split_array(values[None])

    def _step(self, trainable: Any, own: Any, optimizer: Any, images: Any, labels: Any) -> Any:
        def loss_of(trainable: Any) -> Any:
            outputs, after = self._model.stateless_call(trainable, self._select_variables(own), images, training=True)
            return self.criterion(outputs, labels), (after, list_heads(outputs)[0])

        (loss, (after, logits)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        if self.config.trains_epochs:
            correct = (logits.argmax(1) == labels).sum()
            after = [*after, own[-1] + jax.numpy.stack([loss.astype(np.float32), correct.astype(np.float32)])]
        if self._distribution is not None:
            vector, unravel = ravel_pytree(gradients)
            gradients = unravel(jax.lax.pmean(vector, self._distribution.batch_dim_name))
        decay = self.config.weight_decay
        gradients = [gradient + decay * weight for gradient, weight in zip(gradients, trainable)]
        trainable, optimizer = self._optimizer.stateless_apply(optimizer, gradients, trainable)
        return trainable, after, optimizer, loss

    def _select_variables(self, own: Any) -> Any:
        """Return the model's part of a rank's own state."""
        return own[:-1] if self.config.trains_epochs else own

    def _forward(self, trainable: Any, own: Any, images: Any, training: bool = True) -> list[Any]:
        outputs, _ = self._model.stateless_call(trainable, self._select_variables(own), images, training=training)
        return [keras.ops.cast(head, keras.config.floatx()) for head in list_heads(outputs)]

    def _predict_first_head(self, trainable: Any, own: Any, images: Any) -> Any:
        return self._forward(trainable, own, images, training=False)[0]

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        arranged = self.arrange(images, labels)
        put = jax.device_put if self._distribution is None else self._place_split_array
        return tuple(put(values) for values in arranged)

    def step(self, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        rate = self.advance_rate()
        if rate is not None:
            self._state[2][self._rate_index] = self._replicate(np.asarray(rate, keras.config.floatx()))
        *state, self._loss = self._jitted(*self._state, *batch)
        self._state = tuple(state)
        return self._loss

    def _replicate(self, values: Any) -> jax.Array:
        """Put an array, which is the same on every rank, on the devices."""
        if self._distribution is None:
            return jax.numpy.array(values)
        sharding = NamedSharding(self._distribution.device_mesh.backend_mesh, Spec())
        return jax.make_array_from_callback(values.shape, sharding, lambda part: jax.numpy.array(values[part]))

    def tally(self) -> tuple[float, int]:
        losses, correct = copy_local_part(self._state[1][-1]).ravel()
        self._state[1][-1] = self._place_own_array(_NO_TALLY)
        return float(losses), int(correct)

    def predict(self, batch: tuple[jax.Array, jax.Array]) -> Any:
        """Predict on this rank's device alone, with its own statistics. The weights are the same on all ranks."""
        if self._prediction_state is None or self._prediction_state[0] != self._updates:
            trainable, own, _ = self._state
            own = [copy_local_part(values)[0] if self._distribution is not None else values for values in own]
            self._prediction_state = self._updates, ([values.addressable_data(0) for values in trainable], own)
        return copy_local_part(self._inference(*self._prediction_state[1], batch[0].addressable_data(0)))

    def wait(self, ticket: jax.Array | None) -> None:
        """Wait for the loss. All outputs of a compiled step, so the weights too, are ready together."""
        if ticket is not None:
            ticket.block_until_ready()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        if self._distribution is None:
            return None
        mesh = self._distribution.device_mesh.backend_mesh
        return make_mesh_exchange(mesh, self._distribution.batch_dim_name, self._place_own_array(make_gradient(size)))

    def loss(self) -> float:
        return float(copy_local_part(self._loss).item())

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return None if self.job.device.kind == "cpu" else read_gpu_peak_bytes()

    def read_trainable_values(self) -> list[Any]:
        return [copy_local_part(values) for values in self._state[0]]

    def set_dropout(self, active: bool) -> None:
        for variable in networks.list_dropout_switches(self._model):
            self._state[1][self._find_own_place(variable)] = self._place_own_array(np.asarray(active, variable.dtype))

    def restore(self, weights: Mapping[str, Any]) -> None:
        for place, values in self._network.to_native(weights).items():
            self._state[0][place] = self._replicate(values)

    def counted_updates(self) -> int:
        return int(copy_local_part(self._state[2][self._count_index]))

    def drain(self) -> None:
        """Copy the smallest variable to the host. All outputs of a program are ready together."""
        copy_local_part(min(self._state[0], key=lambda values: values.size))

    def read_own_value(self, variable: Any) -> Any:
        values = copy_local_part(self._state[1][self._find_own_place(variable)])
        return values if self._distribution is None else values[0]

    def _find_own_place(self, variable: Any) -> int:
        """Return the place of a non-trainable variable in this rank's own state."""
        return [other.path for other in self._model.non_trainable_variables].index(variable.path)

    def logits(self, batch: tuple[jax.Array, jax.Array]) -> list[Any]:
        trainable, own, _ = self._state
        return [copy_local_part(head) for head in self._jitted_forward(trainable, own, batch[0])]

    def leave(self) -> None:
        if self._distribution is not None:
            jax.distributed.shutdown()
