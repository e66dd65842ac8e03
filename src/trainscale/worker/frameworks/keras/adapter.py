"""What the Keras adapters have in common; each backend has a file of its own for its steps and its strategies."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ...config import Config
from ...job import Job
from ..base import Adapter, rates
from ..user_networks import heads_of
from . import network as networks


class Sgd(keras.optimizers.SGD):
    """Momentum as PyTorch has it: of gradients. Keras' own is of rate × gradient, which is the same only while the rate
    stays as it is. Weight decay is not here: Keras' own is not part of the gradient, so the steps add it there.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        ops = keras.ops
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            self.assign(velocity, ops.add(ops.multiply(velocity, ops.cast(self.momentum, variable.dtype)), gradient))
            gradient = velocity
        self.assign_sub(variable, ops.multiply(gradient, ops.cast(learning_rate, variable.dtype)))


class KerasAdapter(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        networks.settings(job.config.precision, job.config.layout)

    @classmethod
    def look(cls) -> dict[str, Any]:
        """For the probe: what this Keras is and what its backend sees."""
        return {"version": keras.__version__, "versions": versions(), "gpus": cls.gpus()}

    @classmethod
    def gpus(cls) -> list[str]:
        raise NotImplementedError

    @classmethod
    def try_model(cls, config: Config) -> dict[str, int]:
        """For the probe: the network built, and the shape of an image sent through it."""
        networks.settings(config.precision, config.layout)
        network = networks.build_foreign(config, seed=0)
        network.model(keras.Input(networks.image_shape(config)))
        return {"parameters": network.parameter_count}

    def versions(self) -> dict[str, str]:
        return versions()

    def build(self) -> int:
        job = self.job
        self._network = networks.build(job.config, job.seed, job.dropout)
        self._model = self._network.model
        self._rates, self._updates, self._rate = rates(job), 0, self.config.learning_rate
        self.prepare()
        return self._network.parameter_count

    def prepare(self) -> None:
        """Make the optimizer and the step for the model, with seeds of this rank's own for dropout."""
        raise NotImplementedError

    def sgd(self) -> keras.optimizers.Optimizer:
        """Numbers of numpy, because TensorFlow would make 32-bit ones of Python's."""
        optimizer = Sgd(np.float64(self.config.learning_rate), momentum=np.float64(self.config.momentum))
        optimizer.build(self._model.trainable_variables)
        return optimizer

    def new_rate(self) -> float | None:
        """Counts an update. Its learning rate, where that is another than the last one's: else nothing is to be set."""
        rate, last = self._rates(self._updates), self._rate
        self._updates, self._rate = self._updates + 1, rate
        return rate if rate != last else None

    def own_seeds(self) -> dict[str, Any]:
        return networks.own_seeds(self._model, self.job.seed + self.job.rank)

    def reseed(self) -> None:
        seeds = self.own_seeds()
        for variable in self._model.non_trainable_variables:
            if variable.path in seeds:
                variable.assign(seeds[variable.path])

    def serve(self) -> dict[str, Any]:
        raise NotImplementedError("Keras has no parameter servers")

    def arrange(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """A batch as numpy arrays in the layout, the precision and the kind of whole numbers that Keras wants."""
        if not networks.channels_first():
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        return images.astype(keras.config.floatx(), copy=False), labels.astype(np.int32)

    def criterion(self, outputs: Any, labels: Any) -> Any:
        """In at least 32 bits whatever the network computes in."""
        total = 0.0
        for weight, head in zip(self._network.loss_weights, heads_of(outputs)):
            logits = keras.ops.cast(head, keras.config.floatx())
            losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            total = total + weight * keras.ops.mean(losses)
        return total

    def trainable_values(self) -> list[Any]:
        return [keras.ops.convert_to_numpy(variable.value).copy() for variable in self._model.trainable_variables]

    def weights(self) -> dict[str, Any]:
        return self._network.weights(self.trainable_values())

    def macs(self) -> int:
        return networks.macs(self._model)


def versions() -> dict[str, str]:
    import importlib.metadata
    import platform

    backend = keras.backend.backend()
    found = {"keras": keras.__version__, backend: importlib.import_module(backend).__version__}
    if backend == "jax":
        found["jaxlib"] = importlib.metadata.version("jaxlib")
    return {**found, "python": platform.python_version(), "numpy": np.__version__}
