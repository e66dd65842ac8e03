"""Keras on TensorFlow: a tf.function around the model and Keras' optimizer. MultiWorkerMirroredStrategy joins several
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import keras
import tensorflow as tf

from ...job import Job
from ..base import list_heads
from ..tensorflow.adapter import (
    CachedPrograms,
    list_gpu_names,
    make_mirrored_strategy,
    make_pixel_converter,
    make_strategy_exchange,
    read_gpu_peak_bytes,
)
from ..tensorflow.network import count_correct
from .adapter import KerasAdapter
from .network import is_channels_first

_COLLECTIVE_SECONDS = 600  # for a rank that hangs; one that has ended is noticed at once


class KerasTensorFlowAdapter(KerasAdapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if job.config.deterministic:
            tf.config.experimental.enable_op_determinism()
            keras.utils.set_random_seed(job.seed + job.rank)  # without a seed, drawing is not allowed
        tf.config.experimental.enable_tensor_float_32_execution(job.config.precision == "tf32")
        self._strategy: tf.distribute.Strategy | None = None
        self._convert_pixels: Any = None
        self._programs = CachedPrograms(job)
        # On a GPU a step is called while the last one still computes. A CPU step is done when the call returns.
        self.lag = 1 if job.device.kind == "cuda" else 0

    @classmethod
    def gpus(cls) -> list[str]:
        return list_gpu_names()

    def join(self) -> None:
        job = self.job
        if job.config.strategy != "allreduce":
            return
        kinds = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=kinds.NCCL if job.device.kind == "cuda" else kinds.RING, timeout_seconds=_COLLECTIVE_SECONDS
        )
        self._strategy = make_mirrored_strategy(job, options)

    def _open_scope(self) -> AbstractContextManager:
        return nullcontext() if self._strategy is None else self._strategy.scope()

    def build(self) -> int:
        with self._open_scope():
            return super().build()

    def prepare(self) -> None:
        self._optimizer = self.sgd()
        self.seed_dropout()
        # Sum of losses and number of correct predictions since the last call of tally().
        self._tally = tf.Variable(tf.zeros(2, tf.float64)) if self.config.trains_epochs else None
        compiled = self.job.config.compile or None
        # XLA does not compile the collectives of CPUs, so the exchange and the update stay outside.
        self._gradients = tf.function(self._differentiate, jit_compile=compiled)
        self._function = tf.function(self._train, jit_compile=compiled if self._strategy is None else None)
        self._forward = tf.function(self._compute_logits)
        self._inference = tf.function(self._predict_first_head)

    def _train(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        if self._strategy is None:
            return self._step_replica(images, labels)
        # Each process has one replica, whose result is this rank's own.
        return self._strategy.experimental_local_results(self._strategy.run(self._step_replica, (images, labels)))[0]

    def _differentiate(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            outputs = self._model(images, training=True)
            loss = self.criterion(outputs, labels)
        if self._tally is not None:
            counts = loss, count_correct(list_heads(outputs), tf.cast(labels, tf.int64))
            self._tally.assign_add(tf.stack([tf.cast(value, tf.float64) for value in counts]))
        return loss, tape.gradient(loss, self._model.trainable_variables)

    def _step_replica(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients = self._gradients(images, labels)
        variables = self._model.trainable_variables
        # The optimizer adds the gradients of the ranks.
        share = 1 / self.job.workers if self._strategy is not None else 1.0
        decay = self.config.weight_decay
        gradients = [(gradient + decay * weight) * share for gradient, weight in zip(gradients, variables)]
        self._optimizer.apply_gradients(zip(gradients, variables))
        return loss

    def _compute_logits(self, images: tf.Tensor) -> list[tf.Tensor]:
        return [tf.cast(head, keras.config.floatx()) for head in list_heads(self._model(images, training=True))]

    def _predict_first_head(self, images: tf.Tensor) -> tf.Tensor:
        return tf.cast(list_heads(self._model(images, training=False))[0], keras.config.floatx())

    def place(self, images: Any, labels: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.constant(values) for values in self.arrange(images, labels))

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Send the 8-bit pixels to a GPU, a quarter of the bytes of 32-bit numbers."""
        if self.job.device.kind != "cuda":
            return super().place_pixels(pixels, labels, normalization)
        if self._convert_pixels is None:
            self._convert_pixels = make_pixel_converter(normalization, is_channels_first(), keras.config.floatx())
        return self._convert_pixels(tf.constant(pixels)), tf.constant(labels.astype("int32"))

    def step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        rate = self.advance_rate()
        if rate is not None:
            self._optimizer.learning_rate = rate
        self._loss = self._function(*batch)
        return self._loss

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.numpy()
        self._tally.assign(tf.zeros(2, tf.float64))
        return float(losses), int(correct)

    def predict(self, batch: tuple[tf.Tensor, tf.Tensor]) -> Any:
        return self._inference(batch[0]).numpy()

    def wait(self, ticket: tf.Tensor | None) -> None:
        """Copy the loss to the host. The device's stream does that after everything before it, the update included."""
        if ticket is not None:
            ticket.numpy()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        if self._strategy is None:
            return None
        return make_strategy_exchange(self._strategy, "CPU:0" if self.job.device.kind == "cpu" else "GPU:0", size)

    def loss(self) -> float:
        return float(self._loss.numpy())

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return None if self.job.device.kind == "cpu" else read_gpu_peak_bytes()

    def set_dropout(self, active: bool) -> None:
        with self._open_scope():
            super().set_dropout(active)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with self._open_scope():
            super().restore(weights)

    def counted_updates(self) -> int:
        return int(keras.ops.convert_to_numpy(self._optimizer.iterations.value))

    def drain(self) -> None:
        """Copy the smallest variable to the host, which waits for the device's queue."""
        min(self._model.trainable_variables, key=lambda variable: prod(variable.shape)).numpy()

    def logits(self, batch: tuple[tf.Tensor, tf.Tensor]) -> list[Any]:
        return [head.numpy() for head in self._forward(batch[0])]
