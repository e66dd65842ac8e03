"""The two kinds of parameter servers that TensorFlow has: synchronous and asynchronous."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from ...config import Config
from .parameter_server import TensorFlowParameterServerEngine, find_server


class _Sgd(v1.train.MomentumOptimizer):
    """SGD that adds weight decay on the server, to the gradient that it applies."""

    def __init__(self, config: Config, rate: float | tf.Tensor) -> None:
        super().__init__(rate, config.momentum, use_locking=True)
        self._decay = config.weight_decay

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return super()._resource_apply_dense(grad + self._decay * var, var)


class SynchronousEngine(TensorFlowParameterServerEngine):
    """SyncReplicasOptimizer: servers collect a gradient of every worker, apply the mean, and let all workers go on."""

    _failure: Exception | None = None

    def join(self) -> None:
        super().join()
        self._placement = v1.train.replica_device_setter(cluster=self._cluster, worker_device=self._device)

    def _open_scope(self) -> AbstractContextManager:
        return v1.device(self._placement)

    def _place_on_servers(self, shares: dict[str, int]) -> dict[str, AbstractContextManager]:
        return {name: tf.device(f"/job:ps/task:{index}") for name, index in shares.items()}

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Operation:
        workers = self.job.workers
        optimizer = v1.train.SyncReplicasOptimizer(
            _Sgd(self._config, self._make_rate()), replicas_to_aggregate=workers, total_num_replicas=workers
        )
        update = optimizer.apply_gradients(list(zip(gradients, self.variables.values())), global_step=self._steps)
        # No initial tokens: with the default, one worker could give all gradients of the first updates.
        self._first_start, self._other_start = optimizer.chief_init_op, optimizer.local_step_init_op
        (self._collect,) = optimizer.get_chief_queue_runner().enqueue_ops
        self._own += v1.local_variables()
        return update

    def _initialise(self) -> None:
        super()._initialise()
        self._session.run(self._other_start if self.job.rank else self._first_start)
        if self.job.rank == 0:
            threading.Thread(target=self._collect_gradients, daemon=True).start()

    def _collect_gradients(self) -> None:
        """Request each update, as the first worker must; the servers do the work."""
        try:
            while True:
                self._session.run(self._collect)
        except tf.errors.CancelledError:
            return  # closed
        except Exception as error:
            self._failure = error
            self._session.close()  # otherwise a step would wait forever

    def step(self, batch: tuple[Any, Any]) -> float:
        try:
            return super().step(batch)
        except tf.errors.CancelledError:
            raise self._failure or RuntimeError("the session was closed") from None


class AsynchronousEngine(TensorFlowParameterServerEngine):
    """ParameterServerStrategy of compat.v1: servers apply each gradient as it comes."""

    def join(self) -> None:
        super().join()
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            self._cluster,
            task_type="ps" if self._is_server else "worker",
            task_id=self._index,
            num_accelerators={"GPU": 1} if "GPU" in self._device else {},
        )
        self._strategy = v1.distribute.experimental.ParameterServerStrategy(resolver)

    def _open_scope(self) -> AbstractContextManager:
        return self._strategy.scope()

    def _place_on_servers(self, shares: dict[str, int]) -> dict[str, AbstractContextManager]:
        # The strategy assigns variables to servers in turn. With two servers, one would get all weights and the other
        # all biases. It can place a variable beside another, so each server gets one first.
        anchors = [tf.Variable(0, trainable=False, name="anchor") for _ in range(self.job.servers)]
        on_server = {find_server(anchor): anchor for anchor in anchors}
        beside = self._strategy.extended.colocate_vars_with
        return {name: beside(on_server[index]) for name, index in shares.items()}

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Operation:
        pairs = list(zip(gradients, self.variables.values()))
        optimizer = _Sgd(self._config, self._make_rate())
        self._strategy.run(lambda: optimizer.apply_gradients(pairs, global_step=self._steps))
        (update,) = v1.get_collection(v1.GraphKeys.TRAIN_OP)
        return update
