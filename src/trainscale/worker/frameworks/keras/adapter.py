"""What Keras does alike on every backend. Devices, strategies and steps are those of the backend's own adapter, which
trains a Keras model as its network.
"""

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
from ..base import Adapter, list_common_versions, list_heads
from . import network as networks


class Sgd(keras.optimizers.SGD):
    """SGD with momentum of gradients, as in PyTorch. Keras' own momentum is of rate × gradient, which is the same only
    while the rate is constant.

    The adapters add weight decay to the gradients, because Keras' own is not part of them.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        ops = keras.ops
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            self.assign(velocity, ops.add(ops.multiply(velocity, ops.cast(self.momentum, variable.dtype)), gradient))
            gradient = velocity
        self.assign_sub(variable, ops.multiply(gradient, ops.cast(learning_rate, variable.dtype)))


class KerasAdapter(Adapter):
    """Stands before a backend's adapter in a class that derives from both."""

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
        networks.configure(config.precision, config.layout)
        network = networks.build_foreign(config, seed=0)
        network.model(keras.Input(networks.compute_image_shape(config)))
        return network.parameter_count

    def build_model(self) -> keras.Model:
        self._keras = networks.build(self.config, self.job.seed, self.job.dropout)
        self._model = self._keras.model
        self._layers = networks.list_layers(self._model)
        self.seed_dropout()
        return self._model

    def seed_dropout(self) -> None:
        """Dropout differs between ranks, weights do not."""
        generators = [layer.seed_generator for layer in self._layers if hasattr(layer, "seed_generator")]
        for number, generator in enumerate(generators):
            generator.state.assign(np.array([self.job.seed + self.job.rank, number << 20], generator.state.dtype))

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        # The numbers are numpy's, because TensorFlow would make 32-bit ones of Python's.
        optimizer = Sgd(np.float64(self.config.learning_rate), momentum=np.float64(self.config.momentum))
        optimizer.build(self._model.trainable_variables)
        return optimizer

    def _criterion(self, outputs: Any, labels: Any) -> Any:
        """Return the loss, in at least 32 bits whatever the network computes in."""
        total = 0.0
        for weight, head in zip(self._keras.loss_weights, list_heads(outputs)):
            logits = keras.ops.cast(head, keras.config.floatx())
            losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            total = total + weight * keras.ops.mean(losses)
        return total

    def weights(self) -> NamedArrays:
        variables = self._model.trainable_variables
        return self._keras.to_canonical([keras.ops.convert_to_numpy(variable.value).copy() for variable in variables])

    def restore(self, weights: Mapping[str, Any]) -> None:
        for variable, values in zip(self._model.trainable_variables, self._keras.to_native(weights)):
            variable.assign(values)

    def set_dropout(self, active: bool) -> None:
        super().set_dropout(active)
        for layer in self._layers:
            if isinstance(layer, networks.SwitchableDropout):
                self.write_own_value(layer.active, float(active))

    def statistics(self) -> NamedArrays:
        statistics = {}
        for layer in self._keras.graph.layers if self._keras.graph else ():
            if layer.kind == "batch_norm":
                native = self._model.get_layer(layer.identifier)
                statistics[f"{layer.name}.mean"] = self.read_own_value(native.moving_mean)
                statistics[f"{layer.name}.variance"] = self.read_own_value(native.moving_variance)
        return statistics

    def drop(self, layer: str, values: Any) -> Any:
        native = self._model.get_layer(layer.replace(".", "_"))
        native.active.assign(self.read_own_value(native.active))  # JAX keeps the value elsewhere
        return keras.ops.convert_to_numpy(native(keras.ops.convert_to_tensor(values), training=True))

    def read_own_value(self, variable: Any) -> Any:
        """Return a non-trainable variable's value on this rank."""
        return np.array(keras.ops.convert_to_numpy(variable.value))

    def write_own_value(self, variable: Any, value: Any) -> None:
        """Set a non-trainable variable on this rank."""
        variable.assign(value)

    def macs(self) -> int:
        return networks.count_macs(self._model)
