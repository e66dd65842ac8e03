"""What Keras does alike on every backend. Devices, strategies and steps are those of the backend's
own adapter, which trains a Keras model as its network.
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
    """SGD with momentum of gradients, as in PyTorch. Keras' own is of rate × gradient, which is the
    same only while the rate is constant. The adapters add weight decay to the gradients.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        ops = keras.ops
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            kept = ops.multiply(velocity, ops.cast(self.momentum, variable.dtype))
            self.assign(velocity, ops.add(kept, gradient))
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
        seed = self.job.seed + self.job.rank
        random = [layer for layer in self._layers if hasattr(layer, "seed_generator")]
        for number, layer in enumerate(random):
            state = layer.seed_generator.state
            state.assign(np.array([seed, number << 20], state.dtype))

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        # TensorFlow would make 32-bit numbers of Python's.
        rate, momentum = np.float64(self.config.learning_rate), np.float64(self.config.momentum)
        optimizer = Sgd(rate, momentum=momentum)
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
        values = [variable.value for variable in self._model.trainable_variables]
        return self._keras.to_canonical([keras.ops.convert_to_numpy(each).copy() for each in values])

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
        for layer in self.list_layers("batch_norm"):
            native = self._model.get_layer(layer.identifier)
            statistics[f"{layer.name}.mean"] = self.read_own_value(native.moving_mean)
            statistics[f"{layer.name}.variance"] = self.read_own_value(native.moving_variance)
        return statistics

    def drop(self, layer: str, values: Any) -> Any:
        native = self._model.get_layer(layer.replace(".", "_"))
        native.active.assign(self.read_own_value(native.active))  # JAX keeps the value elsewhere
        outputs = native(keras.ops.convert_to_tensor(values), training=True)
        return keras.ops.convert_to_numpy(outputs)

    def read_own_value(self, variable: Any) -> Any:
        """Return a non-trainable variable's value on this rank."""
        return np.array(keras.ops.convert_to_numpy(variable.value))

    def write_own_value(self, variable: Any, value: Any) -> None:
        variable.assign(value)

    def macs(self) -> int:
        return networks.count_macs(self._model)
