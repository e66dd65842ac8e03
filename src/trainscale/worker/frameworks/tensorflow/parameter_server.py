"""TensorFlow's parameter servers: between-graph replication, in which every worker has a session
and takes its own steps.

TensorFlow 2 has a coordinator that gives steps to whichever worker is free, so no rank has steps
that could be timed. This older way is still in every release. Servers hold the weights and their
momentum and run the update: synchronous ones collect a gradient of every worker, apply the mean,
and let all workers go on (SyncReplicasOptimizer); asynchronous ones apply each gradient as it
comes. Batch-norm statistics and the batch are variables on the worker's own device.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from ...config import Config
from ...data.dataset import count_updates_per_epoch
from ...events import ServerResult
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, learning_rate_schedule, transpose
from ..environments import choose_inter_op_threads
from . import network as networks
from .adapter import TensorFlowAdapter, list_addresses
from .network import GraphNetwork


class ParameterServerAdapter(TensorFlowAdapter):
    """The first worker initialises what all share."""

    place_pixels = Adapter.place_pixels  # because sessions take numbers

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._is_server = job.role == "server"
        self._index = job.rank - job.workers if self._is_server else job.rank
        self._task = f"/job:{'ps' if self._is_server else 'worker'}/task:{self._index}"
        self._device = f"{self._task}/device:{self.device}"
        addresses = list_addresses(job)
        self._cluster = tf.train.ClusterSpec(
            {"worker": addresses[: job.workers], "ps": addresses[job.workers : job.world]}
        )
        self._failure: Exception | None = None

    def join(self) -> None:
        v1.disable_eager_execution()
        job, spec = self.job, self._cluster
        self._server = tf.distribute.Server(
            spec, "ps" if self._is_server else "worker", self._index, protocol="grpc", config=self._make_options()
        )
        # Workers tell each server that they are done, the first one tells the others to begin.
        indices = [self._index] if self._is_server else range(job.servers)
        self._done = [self._make_queue("done", index) for index in indices]
        self._initialised = None if self._is_server else self._make_queue("initialised", 0)

    def _make_queue(self, name: str, index: int) -> v1.FIFOQueue:
        with tf.device(f"/job:ps/task:{index}"):
            return v1.FIFOQueue(self.job.workers, tf.int64, shapes=(), shared_name=name)

    def _make_options(self) -> v1.ConfigProto:
        options = v1.ConfigProto(allow_soft_placement=True)
        if self.job.device.cores:
            options.intra_op_parallelism_threads = len(self.job.device.cores)
            options.inter_op_parallelism_threads = choose_inter_op_threads(self.job)
        options.gpu_options.allow_growth = True
        rewriting = options.graph_options.rewrite_options
        # XLA does not know the fused convolutions, and in bfloat16 a session cannot send them.
        if self.job.config.compile or self.job.config.precision == "bf16":
            rewriting.remapping = rewriting.OFF
        # A worker's session waits for the servers only, a server's for nobody.
        options.device_filters.extend([self._task] if self._is_server else ["/job:ps", self._task])
        return options

    def build(self) -> int:
        """Make the variables in the same order everywhere, so that each has its server."""
        self.network = networks.build(self.config, self._style, self.job.seed)
        if self._is_server:
            with tf.Graph().as_default():  # only to know each variable's server
                self._make_variables()
            self._session = v1.Session(self._server.target, config=self._make_options())
            return networks.count_values(self.variables)
        self._make_variables()
        self._make_graph()
        job = self.job
        session = self._session = v1.Session(self._server.target, config=self._make_options())
        session.run([variable.initializer for variable in self._own])
        announce, wait = self._initialised.enqueue(0), self._initialised.dequeue()
        if job.rank:
            session.run(wait)
        else:
            own = {variable.ref() for variable in self._own}
            session.run([v.initializer for v in v1.global_variables() if v.ref() not in own])
            if isinstance(self.network, GraphNetwork):
                self._send(self.network.make_initial_parameters())
            for _ in range(job.workers - 1):
                session.run(announce)
        if not job.is_asynchronous:
            session.run(self._other_start if job.rank else self._first_start)
            if job.rank == 0:
                threading.Thread(target=self._collect_gradients, daemon=True).start()
        # Callables are faster than run().
        self._run = session.make_callable([self._loss, self._train, *self._correct])
        initializers = [variable.initializer for variable in self._batch]
        self._fill = session.make_callable(initializers, [initializer.inputs[1] for initializer in initializers])
        switch = self._dropping.initializer
        self._switch = session.make_callable(switch, [switch.inputs[1]])
        return networks.count_values(self.variables)

    def _make_variables(self) -> None:
        with self._open_scope():
            self._steps = v1.train.get_or_create_global_step()
            if not isinstance(self.network, GraphNetwork):
                self.variables = self.network.make_variables()
                return
            # The largest first, each to the server with the least so far.
            parameters = self.network.graph.parameters()
            loads, servers = [0] * self.job.servers, {}
            for each in sorted(parameters, key=lambda parameter: -parameter.size):
                servers[each.name] = loads.index(min(loads))
                loads[servers[each.name]] += each.size
            self.variables = {}
            for each in parameters:
                shape = transpose(np.broadcast_to(0.0, each.shape)).shape
                with tf.device(f"/job:ps/task:{servers[each.name]}"):
                    # Not its initial values, which would make a graph that is sent to others large.
                    empty = tf.zeros(shape, self._style.weight_dtype)
                    self.variables[each.name] = tf.Variable(empty, name=each.name.replace(".", "/"))

    def _open_scope(self) -> AbstractContextManager:
        """Return the scope that places variables on servers and everything else on this worker."""
        train, cluster = v1.train, self._cluster
        return v1.device(train.replica_device_setter(cluster=cluster, worker_device=self._device))

    def _make_graph(self) -> None:
        job, config, style = self.job, self.config, self._style
        if config.compile and not isinstance(self.network, GraphNetwork):
            problem = "needs a network of the catalogue, not a function"
            raise ValueError(f"--compile with parameter servers {problem}")
        statistics = self.network.make_initial_statistics()
        with tf.device(self._device):
            images = tf.zeros(style.make_batch_shape(job.batch, config), style.weight_dtype)
            self._batch = [
                tf.Variable(images, trainable=False, name="images"),
                tf.Variable(tf.zeros([job.batch], tf.int64), trainable=False, name="labels"),
            ]
            self._statistics = {name: tf.Variable(values, trainable=False) for name, values in statistics.items()}
            self._dropping = tf.Variable(1.0, trainable=False, dtype=style.weight_dtype)
        self._own = [*self._batch, *self._statistics.values(), self._dropping]
        self._resident: Any = None
        tf.random.set_seed(job.seed + job.rank)  # dropout differs between ranks
        self._tally = [0.0, 0]

        differentiate = self._differentiate
        if config.compile:
            differentiate = tf.function(differentiate, jit_compile=True, autograph=False)
        with self._open_scope():
            inputs = self._read()
            with tf.device(self._device):
                self._loss, self._correct, gradients, statistics = differentiate(*inputs)
            updates = [self._update_servers(gradients)]
            updates += [self._statistics[name].assign(values).op for name, values in statistics.items()]
            self._train = tf.group(*updates)
            if config.trains_epochs:
                images, _, weights, statistics, _ = self._read()
                with tf.device(self._device):
                    self._logits = self.network(images, weights, statistics, training=False)[0][0]

    def _read(self) -> tuple[tf.Tensor, tf.Tensor, dict, dict, tf.Tensor]:
        """Read the batch, the weights, the statistics and whether anything is dropped.

        They are read once, so a step computes with the weights that the servers held when it began.
        A user's network reads its weights itself.
        """
        weights, statistics = (
            {name: variable.read_value() for name, variable in variables.items()}
            for variables in (self.variables, self._statistics)
        )
        if not isinstance(self.network, GraphNetwork):
            weights = self.variables
        images, labels = (variable.read_value() for variable in self._batch)
        return images, labels, weights, statistics, self._dropping.read_value()

    def _update_servers(self, gradients: list[tf.Tensor]) -> tf.Operation:
        """Return the operation that sends gradients and ends when this worker may go on."""
        workers, config = self.job.workers, self.config
        # The rate is looked up by the servers' count of updates, because a worker's may be behind.
        updates = max(1, config.epochs * count_updates_per_epoch(self.job))
        rates = list(map(learning_rate_schedule(self.job), range(updates)))
        rate: Any = rates[0]
        if min(rates) < max(rates):
            with tf.device(self._steps.device):
                done = self._steps.read_value() // (workers if self.job.is_asynchronous else 1)
                rate = tf.gather(tf.constant(rates, self._batch[0].dtype), tf.minimum(done, len(rates) - 1))
        optimizer = _Sgd(config, rate)
        if not self.job.is_asynchronous:
            optimizer = v1.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=workers, total_num_replicas=workers
            )
        pairs = list(zip(gradients, self.variables.values()))
        update = optimizer.apply_gradients(pairs, global_step=self._steps)
        if not self.job.is_asynchronous:
            # No initial tokens, with which one worker could give all gradients of the first updates.
            self._first_start, self._other_start = optimizer.chief_init_op, optimizer.local_step_init_op
            (self._collect,) = optimizer.get_chief_queue_runner().enqueue_ops
            self._own += v1.local_variables()
        return update

    def _collect_gradients(self) -> None:
        """Request each update, as the first worker must."""
        try:
            while True:
                self._session.run(self._collect)
        except tf.errors.CancelledError:
            return  # closed
        except Exception as error:
            self._failure = error
            self._session.close()  # otherwise a step would wait forever

    def _put(self, images: Any, labels: Any) -> tuple[Any, Any]:
        # In host memory, from where a step copies it; the caller may overwrite the labels.
        return images, np.array(labels)

    def _take_step(self, batch: tuple[Any, Any]) -> float:
        self._load(batch)
        try:
            loss, _, *correct = self._run()
        except tf.errors.CancelledError:
            raise self._failure or RuntimeError("the session was closed") from None
        if self.config.trains_epochs:
            self._tally[0] += float(loss)
            self._tally[1] += int(correct[0])
        return loss

    def _load(self, batch: tuple[Any, Any]) -> None:
        if batch is not self._resident:
            self._fill(*batch)
            self._resident = batch

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally
        self._tally = [0.0, 0]
        return losses, correct

    def predict(self, batch: tuple[Any, Any]) -> Any:
        self._load(batch)
        return self._session.run(self._logits)

    def set_dropout(self, active: bool) -> None:
        self._switch(float(active))

    def restore(self, weights: Mapping[str, Any]) -> None:
        # All workers use the same variables. Asynchronous ones restore them in turns.
        if self.job.rank == 0 or self.job.is_asynchronous:
            self._send(self.network.to_native(weights))

    def _send(self, parameters: dict[str, np.ndarray]) -> None:
        for name, values in parameters.items():
            initializer = self.variables[name].initializer
            self._session.run(initializer, {initializer.inputs[1]: values})

    def counted_updates(self) -> int:
        return int(self._session.run(self._steps))

    def drain(self) -> None:
        """Read the smallest variable from its server."""
        variables = self.variables.values()
        self._session.run(min(variables, key=lambda variable: variable.shape.num_elements()))

    def statistics(self) -> NamedArrays:
        return self._session.run(self._statistics)

    def weights(self) -> NamedArrays:
        values = self._session.run(dict(self.variables))
        return {name: self.network.to_canonical(value) for name, value in values.items()}

    def serve(self) -> ServerResult:
        """Serve until every worker has sent the number of updates."""
        next_done, size = self._done[0].dequeue(), 0
        updates = max(int(self._session.run(next_done)) for _ in range(self.job.workers))
        for variable in self.variables.values():
            if tf.DeviceSpec.from_string(variable.device).task == self._index:
                size += variable.shape.num_elements() * variable.dtype.size
        return ServerResult(updates=updates, bytes=size)

    def leave(self) -> None:
        if not self._is_server:
            steps = self._session.run(self._steps)
            updates = v1.placeholder(tf.int64, ())
            self._session.run([queue.enqueue(updates) for queue in self._done], {updates: steps})
        self._session.close()


class _Sgd(v1.train.MomentumOptimizer):
    """SGD that adds weight decay on the server, to the gradient that it applies."""

    def __init__(self, config: Config, rate: float | tf.Tensor) -> None:
        super().__init__(rate, config.momentum, use_locking=True)
        self._decay = config.weight_decay

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return super()._resource_apply_dense(grad + self._decay * var, var)
