"""Parameter servers: between-graph replication, in which every worker has a session and takes steps of its own.

The newer ParameterServerStrategy with a coordinator hands steps to whichever worker is free, so no rank has steps that
could be timed; this is TensorFlow's other way, and it is still in every release. Servers hold the weights and their
momentum and run the update. Batch-norm statistics and the batch are variables on the worker's own device.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from ...config import Config
from ...data.source import updates_per_epoch
from ...job import Job
from ..base import rates
from .environment import inter_op_threads
from .layers import Style
from .network import GraphNetwork, UserNetwork, count_right, criterion


class _Sgd(v1.train.MomentumOptimizer):
    """Weight decay is added where the weights are: on the server, to the gradient that it applies."""

    def __init__(self, config: Config, rate: float | tf.Tensor) -> None:
        super().__init__(rate, config.momentum, use_locking=True)
        self._decay = config.weight_decay

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return super()._resource_apply_dense(grad + self._decay * var, var)


def rates_of_all(job: Job) -> Any:
    """The learning rate of every update that a trial's servers make. Servers know how many they have made, so they take
    theirs from a list: no worker, whose own count may be behind, has to tell them.
    """
    rate = rates(job)
    return np.array([rate(update) for update in range(max(1, job.config.epochs * updates_per_epoch(job)))])


def lightest_first(sizes: dict[str, int], servers: int) -> dict[str, int]:
    """Which server holds what: the largest tensors first, each to the server that has least yet."""
    load = [0] * servers
    found = {}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        found[name] = load.index(min(load))
        load[found[name]] += sizes[name]
    return found


def _server_of(variable: tf.Variable) -> int:
    return tf.DeviceSpec.from_string(variable.device).task


class ParameterServerEngine:
    """What both kinds share. Ranks 0 … workers-1 are the workers, the first of them initialises; then the servers."""

    def __init__(self, job: Job, device: str) -> None:
        self.job = job
        self._config = job.config
        self._learns = self._config.trains_epochs
        self._updates_per_step = job.workers if job.asynchronous else 1
        self._serving = job.role == "server"
        self._index = job.rank - job.workers if self._serving else job.rank
        self._task = f"/job:{'ps' if self._serving else 'worker'}/task:{self._index}"
        self._device = f"{self._task}/device:{device}"
        addresses = [f"{address}:{port}" for address, port in zip(job.addresses, job.ports)]
        self._cluster = tf.train.ClusterSpec(
            {"worker": addresses[: job.workers], "ps": addresses[job.workers : job.world]}
        )

    def join(self) -> None:
        v1.disable_eager_execution()
        job, spec = self.job, self._cluster
        self._server = tf.distribute.Server(
            spec, "ps" if self._serving else "worker", self._index, protocol="grpc", config=self._options()
        )
        # Each server hears from every worker when it is done; the workers hear from the first when all is initialised.
        mine = [self._index] if self._serving else range(job.servers)
        self._done = [self._queue("done", index) for index in mine]
        self._initialised = None if self._serving else self._queue("initialised", 0)

    def _queue(self, name: str, index: int) -> v1.FIFOQueue:
        with tf.device(f"/job:ps/task:{index}"):
            return v1.FIFOQueue(self.job.workers, tf.int64, shapes=(), shared_name=name)

    def _options(self) -> v1.ConfigProto:
        options = v1.ConfigProto(allow_soft_placement=True)
        if self.job.device.cores:
            options.intra_op_parallelism_threads = len(self.job.device.cores)
            options.inter_op_parallelism_threads = inter_op_threads(self.job)
        options.gpu_options.allow_growth = True
        rewriting = options.graph_options.rewrite_options
        # The fused convolutions that it makes are unknown to XLA, and in bfloat16 a session cannot send them.
        if self.job.config.compile or self.job.config.precision == "bf16":
            rewriting.remapping = rewriting.OFF
        # A worker waits for the servers when it makes its session, not for the other workers; a server for nobody.
        options.device_filters.extend([self._task] if self._serving else ["/job:ps", self._task])
        return options

    def prepare(self, network: GraphNetwork | UserNetwork, style: Style) -> int:
        """Every process makes the same variables in the same order, and so agrees on where each of them lies."""
        self.network = network
        if self._serving:
            with tf.Graph().as_default():  # to know where variables lie; a server's session knows no other process
                self._make_variables()
        else:
            self._make_variables()
            self._make_step(style)
        self._session = v1.Session(self._server.target, config=self._options())
        if not self._serving:
            self._initialise()
            # Without it every call would look up what it fetches.
            self._run = self._session.make_callable([self._loss, self._train, *self._right])
            initializers = [variable.initializer for variable in self._batch]
            self._fill = self._session.make_callable(initializers, [one.inputs[1] for one in initializers])
        return sum(int(variable.shape.num_elements()) for variable in self.variables.values())

    def _make_variables(self) -> None:
        with self._scope():
            self._steps = v1.train.get_or_create_global_step()
            self.variables = self.network.empty_variables(
                lambda sizes: self._on_servers(lightest_first(sizes, self.job.servers))
            )

    def _scope(self) -> AbstractContextManager:
        """Where variables are placed on servers and everything else on this worker."""
        raise NotImplementedError

    def _on_servers(self, shares: dict[str, int]) -> dict[str, AbstractContextManager]:
        """The context in which each variable is made so that it lies on its server."""
        raise NotImplementedError

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Operation:
        """The operation that sends gradients to the servers and is done when this worker may go on."""
        raise NotImplementedError

    def _make_step(self, style: Style) -> None:
        job, config = self.job, self.job.config
        with tf.device(self._device):
            self._batch = [
                tf.Variable(
                    tf.zeros(style.batch_shape(job.batch, config), style.weight_dtype), trainable=False, name="images"
                ),
                tf.Variable(tf.zeros([job.batch], tf.int64), trainable=False, name="labels"),
            ]
            self._statistics = {
                name: tf.Variable(values, trainable=False) for name, values in self.network.initial_statistics().items()
            }
        self._own = [*self._batch, *self._statistics.values()]
        self._resident: Any = None
        tf.random.set_seed(job.seed + job.rank)  # dropout differs between ranks
        self._tally = [0.0, 0]
        with self._scope():
            self._loss, self._right, gradients, renewed = self._backward(config.compile)
            update = self._apply(gradients)
            self._train = tf.group(
                update, *(self._statistics[name].assign(values).op for name, values in renewed.items())
            )
            self._logits = self._forward() if self._learns else None

    def _rate(self) -> float | tf.Tensor:
        """By the number of updates that the servers have made."""
        every = rates_of_all(self.job)
        if (every == every[0]).all():
            return float(every[0])
        with tf.device(self._steps.device):
            update = tf.minimum(self._steps.read_value() // self._updates_per_step, len(every) - 1)
            return tf.gather(tf.constant(every, self._batch[0].dtype), update)

    def _read(self) -> tuple[tf.Tensor, tf.Tensor, dict, dict]:
        """The batch, the weights and the statistics. Read once: the worker computes with a copy of what the servers
        held when its step began. A user's network reads its weights itself.
        """
        by_value = isinstance(self.network, GraphNetwork)
        weights = {name: variable.read_value() for name, variable in self.variables.items()} if by_value else {}
        statistics = {name: variable.read_value() for name, variable in self._statistics.items()}
        images, labels = (variable.read_value() for variable in self._batch)
        return images, labels, weights, statistics

    def _forward(self) -> tf.Tensor:
        """The first head's logits, by the running statistics of this worker."""
        images, _, weights, statistics = self._read()
        with tf.device(self._device):
            return self.network(images, weights, statistics, training=False)[0][0]

    def _backward(self, compiled: bool) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor], dict]:
        """The loss, how many images were labelled right where that is asked for, gradients, and new statistics."""
        by_value = isinstance(self.network, GraphNetwork)
        if compiled and not by_value:
            raise ValueError("--compile with parameter servers needs a network of the catalogue, not a function")

        def backward(images: Any, labels: Any, weights: dict, statistics: dict) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(weights)
                heads, renewed = self.network(images, weights, statistics)
                loss = criterion(heads, labels, self.network.loss_weights)
            sources = list((weights if by_value else self.variables).values())
            gradients = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return loss, [count_right(heads, labels)] if self._learns else [], gradients, renewed

        given = self._read()
        with tf.device(self._device):
            compute = tf.function(backward, jit_compile=True, autograph=False) if compiled else backward
            return compute(*given)

    def _initialise(self) -> None:
        session, job = self._session, self.job
        session.run([variable.initializer for variable in self._own])
        announce, heard = self._initialised.enqueue(0), self._initialised.dequeue()
        if job.rank:
            session.run(heard)
            return
        own = {variable.ref() for variable in self._own}
        session.run([v.initializer for v in v1.global_variables() if v.ref() not in own])
        if isinstance(self.network, GraphNetwork):
            for name, values in self.network.initial_parameters().items():
                initializer = self.variables[name].initializer
                session.run(initializer, {initializer.inputs[1]: values})
        for _ in range(job.workers - 1):
            session.run(announce)

    def place(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """Still in the host's memory: the step puts it on the device, unless it is there from the step before."""
        return images, np.array(labels)  # a copy: whoever gave them may write over them before the step

    def step(self, batch: tuple[Any, Any]) -> float:
        self._have(batch)
        loss, _, *right = self._run()
        if self._learns:
            self._tally[0] += float(loss)
            self._tally[1] += int(right[0])
        return loss

    def _have(self, batch: tuple[Any, Any]) -> None:
        if batch is not self._resident:
            self._fill(*batch)
            self._resident = batch

    def tally(self) -> tuple[float, int]:
        losses, right = self._tally
        self._tally = [0.0, 0]
        return losses, right

    def predict(self, batch: tuple[Any, Any]) -> Any:
        self._have(batch)
        return self._session.run(self._logits)

    def weights(self) -> dict[str, Any]:
        values = self._session.run(dict(self.variables))
        return {name: self.network.canonical(name, value) for name, value in values.items()}

    def serve(self) -> dict[str, Any]:
        """Until every worker has said that it is done. Each says how many updates there have been."""
        hear = self._done[0].dequeue()
        updates = max(int(self._session.run(hear)) for _ in range(self.job.workers))
        here = [variable for variable in self.variables.values() if _server_of(variable) == self._index]
        return {"updates": updates, "bytes": sum(v.shape.num_elements() * v.dtype.size for v in here)}

    def close(self) -> None:
        if not self._serving:
            steps = self._session.run(self._steps)
            said = v1.placeholder(tf.int64, ())
            self._session.run([queue.enqueue(said) for queue in self._done], {said: steps})
        self._session.close()


class SynchronousEngine(ParameterServerEngine):
    """SyncReplicasOptimizer: servers gather a gradient of every worker, apply their mean, and let all workers go on."""

    _failure: Exception | None = None

    def join(self) -> None:
        super().join()
        self._placement = v1.train.replica_device_setter(cluster=self._cluster, worker_device=self._device)

    def _scope(self) -> AbstractContextManager:
        return v1.device(self._placement)

    def _on_servers(self, shares: dict[str, int]) -> dict[str, AbstractContextManager]:
        return {name: tf.device(f"/job:ps/task:{index}") for name, index in shares.items()}

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Operation:
        workers = self.job.workers
        optimizer = v1.train.SyncReplicasOptimizer(
            _Sgd(self._config, self._rate()), replicas_to_aggregate=workers, total_num_replicas=workers
        )
        update = optimizer.apply_gradients(list(zip(gradients, self.variables.values())), global_step=self._steps)
        # No tokens to begin with: with the default, one worker could give all gradients of the first updates.
        self._first, self._others = optimizer.chief_init_op, optimizer.local_step_init_op
        (self._gather,) = optimizer.get_chief_queue_runner().enqueue_ops
        self._own += v1.local_variables()
        return update

    def _initialise(self) -> None:
        super()._initialise()
        self._session.run(self._others if self.job.rank else self._first)
        if self.job.rank == 0:
            threading.Thread(target=self._gather_for_ever, daemon=True).start()

    def _gather_for_ever(self) -> None:
        """The first worker asks for each update; the work is the servers'."""
        try:
            while True:
                self._session.run(self._gather)
        except tf.errors.CancelledError:
            return  # closed
        except Exception as error:
            self._failure = error
            self._session.close()  # or a step would wait for ever

    def step(self, batch: tuple[Any, Any]) -> float:
        try:
            return super().step(batch)
        except tf.errors.CancelledError:
            raise self._failure or RuntimeError("the session was closed") from None


class AsynchronousEngine(ParameterServerEngine):
    """ParameterServerStrategy of compat.v1: servers apply each worker's gradient as it comes."""

    def join(self) -> None:
        super().join()
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            self._cluster,
            task_type="ps" if self._serving else "worker",
            task_id=self._index,
            num_accelerators={"GPU": 1} if "GPU" in self._device else {},
        )
        self._strategy = v1.distribute.experimental.ParameterServerStrategy(resolver)

    def _scope(self) -> AbstractContextManager:
        return self._strategy.scope()

    def _on_servers(self, shares: dict[str, int]) -> dict[str, AbstractContextManager]:
        # By itself the strategy deals variables out in turn: with two servers, one would get all weights, one all
        # biases. It can put a variable beside another, so there is one on every server first.
        anchors = [tf.Variable(0, trainable=False, name="anchor") for _ in range(self.job.servers)]
        beside = {_server_of(anchor): anchor for anchor in anchors}
        place = self._strategy.extended.colocate_vars_with
        return {name: place(beside[index]) for name, index in shares.items()}

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Operation:
        pairs = list(zip(gradients, self.variables.values()))
        optimizer = _Sgd(self._config, self._rate())
        self._strategy.run(lambda: optimizer.apply_gradients(pairs, global_step=self._steps))
        (update,) = v1.get_collection(v1.GraphKeys.TRAIN_OP)
        return update
