"""Keras on JAX: the JAX adapter's step around the model's stateless form and Keras' optimizer.

Under keras.distribution alone a jitted step would normalize over the images of all ranks. In the
JAX adapter's shard_map each rank normalizes over its own, as in every other framework.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ...job import Job
from ..base import list_heads
from ..jax.adapter import JaxAdapter, JaxAllreduceAdapter, use_interface
from ..jax.network import JaxNetwork
from .adapter import KerasAdapter


class KerasJAXAdapter(KerasAdapter, JaxAdapter):
    """The statistics are all non-trainable variables, including dropout's seeds and switches."""

    weights, restore = JaxAdapter.weights, JaxAdapter.restore

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._image_dtype = keras.config.floatx()  # the layers cast it

    def _build_network(self) -> JaxNetwork:
        model = self.build_model()
        self._optimizer = self.make_optimizer()
        paths = [variable.path for variable in self._optimizer.variables]
        self._rate_place = paths.index(self._optimizer.learning_rate.path)

        def apply(trainable, others, images, key, training=True, **mode):
            outputs, after = model.stateless_call(trainable, others, images, training=training)
            return [keras.ops.cast(head, keras.config.floatx()) for head in list_heads(outputs)], after

        return JaxNetwork(
            _read(model.trainable_variables),
            _read(model.non_trainable_variables),
            apply,
            self._keras.loss_weights,
            self._keras.to_canonical,
            native=self._keras.to_native,
        )

    def _make_momentum(self) -> Any:
        return self._place_parameters(_read(self._optimizer.variables))

    def _sgd(self, parameters: Any, momentum: Any, gradients: Any, rate: Any) -> tuple[Any, Any]:
        variables = [*momentum[: self._rate_place], rate, *momentum[self._rate_place + 1 :]]
        decay = self.config.weight_decay
        gradients = [gradient + decay * weight for gradient, weight in zip(gradients, parameters)]
        return self._optimizer.stateless_apply(variables, gradients, parameters)

    def read_own_value(self, variable: Any) -> Any:
        return self._read_state()["statistics"][self._find_own_place(variable)]

    def write_own_value(self, variable: Any, value: Any) -> None:
        array = np.asarray(value, variable.dtype)
        self._state["statistics"][self._find_own_place(variable)] = self._place_state(array)

    def _find_own_place(self, variable: Any) -> int:
        return [other.path for other in self._model.non_trainable_variables].index(variable.path)


class KerasJAXAllreduceAdapter(KerasJAXAdapter, JaxAllreduceAdapter):
    """A mesh of the processes that keras.distribution has joined."""

    def join(self) -> None:
        job = self.job
        if job.interface and not self.cuda:
            use_interface(job.interface)
        keras.utils.set_random_seed(job.seed)  # otherwise Keras would agree on a seed by a collective
        keras.distribution.initialize(f"{job.coordinator}:{job.port}", job.workers, job.rank)
        self.make_mesh()


def _read(variables: list[Any]) -> list[Any]:
    return [np.asarray(variable.value) for variable in variables]
