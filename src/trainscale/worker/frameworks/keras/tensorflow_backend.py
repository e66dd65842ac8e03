"""Keras on TensorFlow: the TensorFlow adapter's step around the model and Keras' optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from ..base import list_heads
from ..tensorflow.adapter import TensorFlowAdapter, TensorFlowAllreduceAdapter
from .adapter import KerasAdapter


class ModelNetwork:
    """A Keras model as a network of the TensorFlow adapter. It keeps its statistics itself."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def make_variables(self) -> dict[str, tf.Variable]:
        return {variable.path: variable.value for variable in self._model.trainable_variables}

    def make_initial_statistics(self) -> dict[str, Any]:
        return {}

    def __call__(self, images, parameters, statistics, training=True, dropping=1.0) -> tuple[list, dict]:
        outputs = self._model(images, training=training)
        return [tf.cast(head, keras.config.floatx()) for head in list_heads(outputs)], {}


class KerasTensorFlowAdapter(KerasAdapter, TensorFlowAdapter):
    def _build_network(self) -> ModelNetwork:
        return ModelNetwork(self.build_model())

    def _prepare_optimizer(self) -> None:
        self._optimizer = self.make_optimizer()

    def _place_rate(self, rate: float) -> tf.Tensor:
        self._optimizer.learning_rate = rate
        return super()._place_rate(rate)

    def _update(self, gradients: list[tf.Tensor], rate: tf.Tensor) -> None:
        # The optimizer adds the gradients of the ranks.
        share = 1 / self.job.workers if self.config.strategy == "allreduce" else 1.0
        decay, variables = self.config.weight_decay, self._model.trainable_variables
        gradients = [(gradient + decay * weight) * share for gradient, weight in zip(gradients, variables)]
        self._optimizer.apply_gradients(zip(gradients, variables))

    def set_dropout(self, active: bool) -> None:
        with self._open_scope():
            super().set_dropout(active)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with self._open_scope():
            super().restore(weights)

    def counted_updates(self) -> int:
        return int(keras.ops.convert_to_numpy(self._optimizer.iterations.value))


class KerasTensorFlowAllreduceAdapter(KerasTensorFlowAdapter, TensorFlowAllreduceAdapter):
    """MultiWorkerMirroredStrategy."""
