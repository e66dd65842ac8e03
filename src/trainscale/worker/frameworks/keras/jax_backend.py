"""Keras on JAX: a jitted step on the model's stateless form; keras.distribution places everything when several train
together.

Under keras.distribution alone a jitted step would normalise over the images of all ranks. As in every other framework
here each rank normalises over its own: the step runs in a shard_map over the distribution's mesh, and what a rank keeps
for itself (batch-norm statistics, seeds, what it got right) has a leading axis that is split over the ranks. Gradients
are averaged as one long vector.
"""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from ...job import Job
from ..jax.adapter import speak_on
from ..user_networks import heads_of
from .adapter import KerasAdapter

# Of the steps since the last tally: the sum of losses, and how many images were labelled right.
_NO_TALLY = np.zeros(2, np.float32)


class Adapter(KerasAdapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # Calls return before a step is done. Two in flight keep a GPU's queue filled; on a CPU one fills the gap.
        self.lag = 2 if job.device.kind == "cuda" else 1
        self._distribution: keras.distribution.DataParallel | None = None

    @classmethod
    def gpus(cls) -> list[str]:
        return [device.device_kind for device in jax.devices() if device.platform == "gpu"]

    def join(self) -> None:
        job = self.job
        if job.config.strategy != "allreduce":
            return
        if job.interface and job.device.kind == "cpu":
            speak_on(job.interface)
        keras.utils.set_random_seed(job.seed)  # else Keras would agree on a seed by a collective of its own
        keras.distribution.initialize(f"{job.coordinator}:{job.port}", job.workers, job.rank)
        self._distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        keras.distribution.set_distribution(self._distribution)

    def prepare(self) -> None:
        self._optimizer = self.sgd()
        seeds = self.own_seeds()
        others = self._model.non_trainable_variables
        kept = [seeds.get(variable.path, np.asarray(variable.value)) for variable in others]
        if self.config.trains_epochs:
            kept.append(_NO_TALLY)
        step, forward = self._step, self._forward
        if self._distribution is not None:
            step, forward = self._mapped()
        self._state = (
            [variable.value for variable in self._model.trainable_variables],
            [self._keep(values) for values in kept],
            [variable.value for variable in self._optimizer.variables],
        )
        self._rate_place = [variable.path for variable in self._optimizer.variables].index(
            self._optimizer.learning_rate.path
        )
        self._jitted = jax.jit(step, donate_argnums=(0, 1, 2))
        self._jitted_forward = jax.jit(forward)
        self._inference = jax.jit(self._first_head)
        self._in_use: tuple[int, Any] | None = None

    def _mapped(self) -> tuple[Any, Any]:
        """The step and the forward pass of every rank side by side."""
        mesh, own = self._distribution.device_mesh.backend_mesh, self._own

        def step(trainable: Any, kept: Any, optimizer: Any, images: Any, labels: Any) -> Any:
            trainable, kept, optimizer, loss = self._step(
                trainable, [values[0] for values in kept], optimizer, images, labels
            )
            return trainable, [values[None] for values in kept], optimizer, loss[None]

        def forward(trainable: Any, kept: Any, images: Any) -> Any:
            return self._forward(trainable, [values[0] for values in kept], images)

        same = Spec()
        return (
            jax.shard_map(
                step,
                mesh=mesh,
                in_specs=(same, own, same, own, own),
                out_specs=(same, own, same, own),
                check_vma=False,
            ),
            jax.shard_map(forward, mesh=mesh, in_specs=(same, own, own), out_specs=own, check_vma=False),
        )

    @property
    def _own(self) -> Spec:
        return Spec(self._distribution.batch_dim_name)

    def _share(self, values: Any) -> jax.Array:
        """This rank's part of an array whose first axis is split over the ranks."""
        sharding = NamedSharding(self._distribution.device_mesh.backend_mesh, self._own)
        return jax.make_array_from_process_local_data(sharding, values)

    def _keep(self, values: Any) -> jax.Array:
        """What is this rank's alone, as the state holds it: JAX's own copy, which a step may write over."""
        return jax.numpy.array(values) if self._distribution is None else self._share(values[None])

    def _step(self, trainable: Any, kept: Any, optimizer: Any, images: Any, labels: Any) -> Any:
        def loss_of(trainable: Any) -> Any:
            outputs, after = self._model.stateless_call(trainable, self._variables(kept), images, training=True)
            return self.criterion(outputs, labels), (after, heads_of(outputs)[0])

        (loss, (after, logits)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        if self.config.trains_epochs:
            right = (logits.argmax(1) == labels).sum()
            after = [*after, kept[-1] + jax.numpy.stack([loss.astype(np.float32), right.astype(np.float32)])]
        if self._distribution is not None:
            vector, unravel = ravel_pytree(gradients)
            gradients = unravel(jax.lax.pmean(vector, self._distribution.batch_dim_name))
        decay = self.config.weight_decay
        gradients = [gradient + decay * weight for gradient, weight in zip(gradients, trainable)]
        trainable, optimizer = self._optimizer.stateless_apply(optimizer, gradients, trainable)
        return trainable, after, optimizer, loss

    def _variables(self, kept: Any) -> Any:
        """Of what a rank keeps for itself, the model's part."""
        return kept[:-1] if self.config.trains_epochs else kept

    def _forward(self, trainable: Any, kept: Any, images: Any, training: bool = True) -> list[Any]:
        outputs, _ = self._model.stateless_call(trainable, self._variables(kept), images, training=training)
        return [keras.ops.cast(head, keras.config.floatx()) for head in heads_of(outputs)]

    def _first_head(self, trainable: Any, kept: Any, images: Any) -> Any:
        return self._forward(trainable, kept, images, training=False)[0]

    def place(self, images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        arranged = self.arrange(images, labels)
        put = jax.device_put if self._distribution is None else self._share
        return tuple(put(values) for values in arranged)

    def step(self, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        rate = self.new_rate()
        if rate is not None:
            self._state[2][self._rate_place] = self._everywhere(np.asarray(rate, keras.config.floatx()))
        *state, self._loss = self._jitted(*self._state, *batch)
        self._state = tuple(state)
        return self._loss

    def _everywhere(self, values: Any) -> jax.Array:
        """The same on every rank."""
        if self._distribution is None:
            return jax.numpy.array(values)
        sharding = NamedSharding(self._distribution.device_mesh.backend_mesh, Spec())
        return jax.make_array_from_callback(values.shape, sharding, lambda part: jax.numpy.array(values[part]))

    def tally(self) -> tuple[float, int]:
        losses, right = _local(self._state[1][-1]).ravel()
        self._state[1][-1] = self._keep(_NO_TALLY)
        return float(losses), int(right)

    def predict(self, batch: tuple[jax.Array, jax.Array]) -> Any:
        """On this rank's device alone, by its own statistics; its weights are everybody's."""
        if self._in_use is None or self._in_use[0] != self._updates:
            trainable, kept, _ = self._state
            own = [_local(values)[0] if self._distribution is not None else values for values in kept]
            self._in_use = self._updates, ([values.addressable_data(0) for values in trainable], own)
        return _local(self._inference(*self._in_use[1], batch[0].addressable_data(0)))

    def wait(self, ticket: jax.Array | None) -> None:
        """All that one compiled step gives is ready at once: the loss stands for the weights."""
        if ticket is not None:
            ticket.block_until_ready()

    def mark(self) -> None:
        return None

    def loss(self) -> float:
        return float(_local(self._loss).item())

    def device_peak_bytes(self) -> int | None:
        if self.job.device.kind == "cpu":
            return None
        return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"]

    def trainable_values(self) -> list[Any]:
        return [_local(values) for values in self._state[0]]

    def logits(self, batch: tuple[jax.Array, jax.Array]) -> list[Any]:
        trainable, kept, _ = self._state
        return [_local(head) for head in self._jitted_forward(trainable, kept, batch[0])]

    def leave(self) -> None:
        if self._distribution is not None:
            jax.distributed.shutdown()


def _local(values: jax.Array) -> Any:
    """The part of an array that is on this rank's device."""
    return np.array(values.addressable_data(0))
