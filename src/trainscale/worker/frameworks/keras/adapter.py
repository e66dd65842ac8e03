"""What the Keras adapters share. Each backend has a file of its own for its steps and strategies."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import keras
import numpy as np

from ...config import Config
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, learning_rate_schedule, list_common_versions, list_heads
from . import network as networks


class Sgd(keras.optimizers.SGD):
    """SGD with momentum of gradients, as in PyTorch. Keras' own momentum is of rate × gradient, which is the same only
    while the rate is constant.

    The steps add weight decay to the gradients, because Keras' own is not part of them.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        ops = keras.ops
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            self.assign(velocity, ops.add(ops.multiply(velocity, ops.cast(self.momentum, variable.dtype)), gradient))
            gradient = velocity
        self.assign_sub(variable, ops.multiply(gradient, ops.cast(learning_rate, variable.dtype)))


class KerasAdapter(Adapter, Proof):
    switches_dropout = True
    restores_weights = True
    ends_at_once = True
    has_biased_variance = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        networks.configure(job.config.precision, job.config.layout)

    @classmethod
    def versions(cls) -> dict[str, str]:
        backend = keras.backend.backend()
        versions = {"keras": keras.__version__, backend: importlib.import_module(backend).__version__}
        if backend == "jax":
            versions["jaxlib"] = metadata.version("jaxlib")
        return {**versions, **list_common_versions()}

    @classmethod
    def try_model(cls, config: Config) -> int:
        """Build the network and send the shape of an image through it."""
        networks.configure(config.precision, config.layout)
        network = networks.build_foreign(config, seed=0)
        network.model(keras.Input(networks.compute_image_shape(config)))
        return network.parameter_count

    def build(self) -> int:
        job = self.job
        self._network = networks.build(job.config, job.seed, job.dropout)
        self._model = self._network.model
        self._rates, self._updates, self._rate = learning_rate_schedule(job), 0, self.config.learning_rate
        self.prepare()
        return self._network.parameter_count

    def prepare(self) -> None:
        """Make the optimizer and the step for the model, with this rank's own seeds for dropout."""
        raise NotImplementedError

    def sgd(self) -> keras.optimizers.Optimizer:
        """Return the optimizer. Its numbers are numpy's, because TensorFlow would make 32-bit ones of Python's."""
        optimizer = Sgd(np.float64(self.config.learning_rate), momentum=np.float64(self.config.momentum))
        optimizer.build(self._model.trainable_variables)
        return optimizer

    def advance_rate(self) -> float | None:
        """Count an update; return its learning rate if that differs from the last one's, else None."""
        rate, last = self._rates(self._updates), self._rate
        self._updates, self._rate = self._updates + 1, rate
        return rate if rate != last else None

    def make_random_states(self) -> NamedArrays:
        return networks.make_random_states(self._model, self.job.seed + self.job.rank)

    def seed_dropout(self) -> None:
        states = self.make_random_states()
        for variable in self._model.non_trainable_variables:
            if variable.path in states:
                variable.assign(states[variable.path])

    def arrange(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """Return a batch as numpy arrays in the layout, precision and integer type that Keras wants."""
        if not networks.is_channels_first():
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        return images.astype(keras.config.floatx(), copy=False), labels.astype(np.int32)

    def criterion(self, outputs: Any, labels: Any) -> Any:
        """Return the loss, in at least 32 bits whatever the network computes in."""
        total = 0.0
        for weight, head in zip(self._network.loss_weights, list_heads(outputs)):
            logits = keras.ops.cast(head, keras.config.floatx())
            losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            total = total + weight * keras.ops.mean(losses)
        return total

    def read_trainable_values(self) -> list[Any]:
        return [keras.ops.convert_to_numpy(variable.value).copy() for variable in self._model.trainable_variables]

    def weights(self) -> NamedArrays:
        return self._network.to_canonical(self.read_trainable_values())

    def set_dropout(self, active: bool) -> None:
        for variable in networks.list_dropout_switches(self._model):
            variable.assign(float(active))

    def restore(self, weights: Mapping[str, Any]) -> None:
        for place, values in self._network.to_native(weights).items():
            self._model.trainable_variables[place].assign(values)

    def statistics(self) -> NamedArrays:
        graph = self.catalogue_graph
        variables = networks.find_statistics_variables(self._model, graph) if graph else {}
        return {name: self.read_own_value(variable) for name, variable in variables.items()}

    def drop(self, layer: str, values: Any) -> Any:
        native = self._model.get_layer(layer.replace(".", "_"))
        native.active.assign(self.read_own_value(native.active))  # JAX keeps the value elsewhere
        return keras.ops.convert_to_numpy(native(keras.ops.convert_to_tensor(values), training=True))

    def read_own_value(self, variable: Any) -> Any:
        """Return a non-trainable variable's value on this rank as a numpy array."""
        return np.array(keras.ops.convert_to_numpy(variable.value))

    def macs(self) -> int:
        return networks.count_macs(self._model)
