"""Strategies by TensorFlow's own engines: how the gradients of a step become new weights. Parameter servers have files
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ...job import Job
from ...type_aliases import NamedArrays
from ..base import learning_rate_schedule
from .devices import make_mirrored_strategy
from .layers import Style
from .network import GraphNetwork, UserNetwork, count_correct, criterion


class TensorFlowLocalEngine:
    """One device without communication: a step is one tf.function. ``independent`` is this on every worker."""

    def __init__(self, job: Job, device: str) -> None:
        self.job = job
        self.device = device
        self._config, self._rates, self._updates = job.config, learning_rate_schedule(job), 0
        self._rate: tuple[float, tf.Tensor] | None = None  # of the last update: the number, and the same on the device
        self.dropping: tf.Tensor | None = None  # 1, or 0 while dropout is switched off

    def join(self) -> None:
        """Join the other ranks, before anything is computed."""

    def prepare(self, network: GraphNetwork | UserNetwork, style: Style) -> int:
        """Make the variables and the step; return the number of trainable parameters."""
        self.network = network
        self.variables = network.make_variables()
        self._momenta = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in self.variables.items()}
        # Each rank keeps its own batch-norm statistics, under every strategy.
        self._statistics = {name: tf.Variable(values) for name, values in network.make_initial_statistics().items()}
        # Sum of losses and number of correct predictions since the last call of tally().
        self._tally = tf.Variable(tf.zeros(2, tf.float64)) if self._config.trains_epochs else None
        self._count = tf.Variable(0, dtype=tf.int64)  # of updates, by the compiled program
        self._dtype = style.weight_dtype
        self.set_dropout(True)
        tf.random.set_seed(self.job.seed + self.job.rank)  # dropout differs between ranks, weights do not
        self._step = self._make_step()
        self._inference = tf.function(self._predict_first_head, autograph=self._needs_autograph)
        return sum(int(variable.shape.num_elements()) for variable in self.variables.values())

    def place(self, images: Any, labels: Any) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.device(self.device):
            return tf.constant(images), tf.constant(labels)

    def step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Return the loss. On a GPU neither it nor the update is computed yet."""
        rate = self._rates(self._updates)
        self._updates += 1
        if self._rate is None or self._rate[0] != rate:
            with tf.device(self.device):
                self._rate = rate, tf.constant(rate, self._dtype)
        return self._step(*batch, self._rate[1], self.dropping)

    def set_dropout(self, active: bool) -> None:
        with tf.device(self.device):
            self.dropping = tf.constant(float(active), self._dtype)

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.numpy()
        self._tally.assign(tf.zeros(2, tf.float64))
        return float(losses), int(correct)

    def predict(self, batch: tuple[tf.Tensor, tf.Tensor]) -> Any:
        return self._inference(batch[0]).numpy()

    def _predict_first_head(self, images: tf.Tensor) -> tf.Tensor:
        return self.network(images, self.variables, self._statistics, training=False)[0][0]

    def forward(self, images: tf.Tensor) -> list[tf.Tensor]:
        return self.network(images, self.variables, self._statistics, dropping=self.dropping)[0]

    def restore(self, weights: Mapping[str, Any]) -> None:
        for name, values in self.network.to_native(weights).items():
            self.variables[name].assign(values)

    def counted_updates(self) -> int:
        return int(self._count.numpy())

    def drain(self) -> None:
        """Copy the smallest variable to the host, which waits for the device's queue."""
        min(self.variables.values(), key=lambda variable: variable.shape.num_elements()).numpy()

    def statistics(self) -> NamedArrays:
        return {name: variable.numpy().copy() for name, variable in self._statistics.items()}

    def weights(self) -> NamedArrays:
        return {name: self.network.to_canonical(name, variable.numpy()) for name, variable in self.variables.items()}

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return None

    def close(self) -> None:
        """Leave the cluster."""

    @property
    def _needs_autograph(self) -> bool:
        """Whether AutoGraph must turn Python's if and for into operations.

        Users' networks may rely on it. Graphs do not, and without it their first step takes half the time.
        """
        return isinstance(self.network, UserNetwork)

    def _make_step(self) -> Any:
        @tf.function(jit_compile=self.job.config.compile or None, autograph=self._needs_autograph)
        def step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, dropping: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._backward(images, labels, dropping)
            self._update(gradients, rate)
            return loss

        return step

    def _backward(self, images: tf.Tensor, labels: tf.Tensor, dropping: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            heads, new_statistics = self.network(images, self.variables, self._statistics, dropping=dropping)
            loss = criterion(heads, labels, self.network.loss_weights)
        for name, values in new_statistics.items():
            self._statistics[name].assign(values)
        if self._tally is not None:
            counts = loss, count_correct(heads, labels)
            self._tally.assign_add(tf.stack([tf.cast(value, tf.float64) for value in counts]))
        unused = tf.UnconnectedGradients.ZERO
        return loss, tape.gradient(loss, list(self.variables.values()), unconnected_gradients=unused)

    def _update(self, gradients: list[tf.Tensor], rate: tf.Tensor) -> None:
        tf.raw_ops.AssignAddVariableOp(resource=self._count.handle, value=tf.constant(1, tf.int64))
        for (name, variable), gradient in zip(self.variables.items(), gradients):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=self._momenta[name].handle,
                lr=rate,
                grad=gradient + self._config.weight_decay * variable,
                momentum=tf.constant(self._config.momentum, variable.dtype),
            )


class TensorFlowAllreduceEngine(TensorFlowLocalEngine):
    """MultiWorkerMirroredStrategy with a custom training loop; each worker has one replica."""

    def join(self) -> None:
        job = self.job
        kinds = tf.distribute.experimental.CommunicationImplementation
        # No time limit: the first step may take minutes, and a rank that has ended is noticed without one.
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=kinds.AUTO if job.device.kind == "cuda" else kinds.RING
        )
        self._strategy = make_mirrored_strategy(job, options)

    def prepare(self, network: GraphNetwork | UserNetwork, style: Style) -> int:
        with self._strategy.scope():
            return super().prepare(network, style)

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return make_strategy_exchange(self._strategy, self.device, size)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with self._strategy.scope():
            super().restore(weights)

    def _make_step(self) -> Any:
        # XLA does not compile collectives, only what is between them.
        backward = self._backward
        if self.job.config.compile:
            backward = tf.function(backward, jit_compile=True, autograph=self._needs_autograph)

        def replica(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, dropping: tf.Tensor) -> tf.Tensor:
            loss, gradients = backward(images, labels, dropping)
            context = tf.distribute.get_replica_context()
            self._update(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients), rate)
            return loss

        @tf.function(autograph=self._needs_autograph)
        def step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, dropping: tf.Tensor) -> tf.Tensor:
            return self._strategy.run(replica, args=(images, labels, rate, dropping))

        return step


def make_strategy_exchange(strategy: tf.distribute.Strategy, device: str, size: int) -> Callable[[], None]:
    """Return a function that averages a vector as a step averages gradients. It is traced here, before it is timed."""
    with tf.device(device):
        # The sums of many exchanges stay finite, and no value is zero.
        vector = tf.fill([max(1, size // 4)], 1e-20)

    def replica(values: tf.Tensor) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)

    function = tf.function(lambda: strategy.run(replica, args=(vector,)), autograph=False)

    def exchange() -> None:
        function()[:1].numpy()

    exchange()
    return exchange


def engine_for(job: Job, device: str) -> Any:
    from .parameter_server_engines import AsynchronousEngine, SynchronousEngine

    engines = {
        "local": TensorFlowLocalEngine,
        "independent": TensorFlowLocalEngine,
        "allreduce": TensorFlowAllreduceEngine,
        "ps": SynchronousEngine,
        "ps-async": AsynchronousEngine,
    }
    return engines[job.config.strategy](job, device)
