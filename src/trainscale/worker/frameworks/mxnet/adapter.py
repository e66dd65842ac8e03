"""MXNet: hybridized Gluon blocks, Gluon's Trainer, and MXNet's own parameter servers (ps-lite)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from importlib import metadata
from math import prod
from typing import Any

import numpy

from ...config import Config
from ...events import ServerResult
from ...job import WORKER, Job
from ...type_aliases import NamedArrays
from ..base import Adapter, learning_rate_schedule, list_common_versions, list_heads

# MXNet 1.9.1 needs a name at its import that numpy 1.24 removed.
if "bool" not in vars(numpy):
    numpy.bool = bool
# As a server or scheduler MXNet does not return from its import, so ``serve`` imports it.
if os.environ.get("DMLC_ROLE", WORKER) == WORKER:
    import mxnet as mx
    from mxnet import autograd, gluon

    from . import network as networks
    from .optimizer import ScheduledSGD

_EXCHANGE_KEYS = 10**6  # keys from here on belong to no parameter
_STORES = {"ps": "dist_sync", "ps-async": "dist_async"}


class MxnetAdapter(Adapter):
    lag = 1  # keeps MXNet's own queue from running empty

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._store: Any = None
        self.has_biased_variance = job.device.kind == "cpu"  # cuDNN's is not biased
        if job.role != WORKER:
            return
        self._device = mx.gpu(0) if job.device.kind == "cuda" else mx.cpu()
        self._dtype = "float64" if job.config.precision == "fp64" else "float32"
        self._tally: Any = None
        if self.config.trains_epochs:
            self._tally = mx.nd.zeros(2, ctx=self._device, dtype="float64")

    @classmethod
    def versions(cls) -> dict[str, str]:
        # A server cannot import MXNet.
        return {"mxnet": metadata.version("mxnet"), **list_common_versions()}

    @classmethod
    def gpus(cls) -> list[str]:
        return [f"GPU {number}" for number in range(mx.context.num_gpus())]

    @classmethod
    def try_model(cls, config: Config) -> int:
        network = networks.build_foreign(config, seed=0, device=mx.cpu())
        mx.nd.waitall()  # errors of queued operations are raised by waiting
        return network.parameter_count

    def join(self) -> None:
        strategy = self.job.config.strategy
        if self.job.role == WORKER and strategy in _STORES:
            self._store = mx.kv.create(_STORES[strategy])

    def build(self) -> int:
        job, config = self.job, self.config
        if job.role != WORKER:
            # A server sees the weights only when they arrive.
            return self.catalogue_graph.parameter_count if self.catalogue_graph else 0
        network = networks.build(config, job.seed, job.dropout, self._device, self._dtype)
        self._network = network
        self._block = network.block
        self._criterion = networks.Criterion(network.loss_weights)
        for block in (self._block, self._criterion):
            block.hybridize(static_alloc=True, static_shape=True)
        # Synchronous servers add the gradients of the ranks.
        summed = job.workers if config.strategy == "ps" else 1
        # MXNet rounds these constants to float32, which changes an update by 5e-8.
        constants = {"momentum": config.momentum, "wd": config.weight_decay, "rescale_grad": 1 / summed}
        if config.trains_epochs:
            # The schedule counts the updates of all workers as one.
            sharers = job.workers if config.strategy == "ps-async" else 1
            optimizer = ScheduledSGD(learning_rate_schedule(job), sharers, **constants)
        else:
            optimizer = mx.optimizer.SGD(learning_rate=config.learning_rate, **constants)
        # MXNet updates four at a time and spends on each what the largest needs. In the order of
        # the layers, an update of ResNet-18 takes half as long again.
        parameters = sorted(network.parameters.values(), key=lambda parameter: prod(parameter.shape))
        for parameter in parameters:
            parameter.wd_mult = parameter.lr_mult = 1.0
        store = self._store or ("device" if self._device.device_type == "gpu" else "local")
        self._trainer = gluon.Trainer(parameters, optimizer, kvstore=store)
        # The trainer would do this in its first step, when gradients could overtake the weights.
        self._trainer._init_kvstore()
        self._trainer._init_params()
        mx.nd.waitall()
        # Views of one value of each parameter; reading them waits for writes in the queue.
        self._first_values = [p.data().reshape(-1)[0:1] for p in network.parameters.values()]
        mx.random.seed(job.seed + job.rank)  # dropout differs between ranks, weights do not
        return network.parameter_count

    def serve(self) -> ServerResult:
        """Serve until the workers are done. In these roles the import of MXNet is the server, or the
        scheduler. It ends when all workers have left, and would end the interpreter with it.
        """
        try:
            import mxnet  # noqa: F401
        except SystemExit as end:
            trace = end.__traceback__
        except Exception as error:  # of MXNet's own type, whose import has just failed
            if "bind failed" in str(error):
                message = "Address already in use: the port of MXNet's scheduler"
                raise OSError(errno.EADDRINUSE, message) from error
            raise
        else:
            raise RuntimeError("MXNet was imported as by a worker, not as a server or scheduler")
        # The server's store is a local variable of the loop that has just ended; a scheduler has none.
        # It has a momentum for each array that it holds. Without momentum its size is unknown.
        while trace is not None:
            updater = getattr(trace.tb_frame.f_locals.get("kvstore"), "_updater", None)
            if updater is not None:
                updates = updater.optimizer.num_update
                momenta = [momentum for momentum in updater.states.values() if momentum is not None]
                size = sum(momentum.size * momentum.dtype(0).itemsize for momentum in momenta)
                return ServerResult(updates=updates, bytes=size if momenta else None)
            trace = trace.tb_next
        return ServerResult()

    def place(self, images: Any, labels: Any) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
        return (
            mx.nd.array(images, ctx=self._device, dtype=self._dtype),
            mx.nd.array(labels, ctx=self._device, dtype="int32"),
        )

    def step(self, batch: tuple[mx.nd.NDArray, mx.nd.NDArray]) -> mx.nd.NDArray:
        images, labels = batch
        with autograd.record():
            heads = list_heads(self._block(images))
            loss = self._criterion(labels, *heads)
        if self._tally is not None:
            correct = (heads[0].argmax(axis=1).astype("int32") == labels).sum()
            self._tally += mx.nd.concat(loss.astype("float64"), correct.astype("float64"), dim=0)
        loss.backward()
        self._trainer.step(1)
        self._loss = loss
        return self.mark()

    def mark(self) -> mx.nd.NDArray:
        # A tiny operation, which starts when every parameter has been written.
        return mx.nd.add_n(*self._first_values)

    def wait(self, ticket: mx.nd.NDArray) -> None:
        ticket.wait_to_read()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        if self._store is None:
            return None
        key = _EXCHANGE_KEYS + size
        gradient = mx.nd.full(max(1, size // 4), 1e-20, ctx=self._device)
        weights = gradient.copy()
        self._store.init(key, weights)

        def exchange() -> None:
            self._store.push(key, gradient)
            self._store.pull(key, out=weights)
            weights.wait_to_read()

        return exchange

    def loss(self) -> float:
        return float(self._loss.asscalar())

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.asnumpy()
        self._tally[:] = 0
        return float(losses), int(correct)

    def predict(self, batch: tuple[mx.nd.NDArray, mx.nd.NDArray]) -> Any:
        return list_heads(self._block(batch[0]))[0].asnumpy()

    def weights(self) -> NamedArrays:
        parameters = self._network.parameters.items()
        return {name: parameter.data().asnumpy() for name, parameter in parameters}

    def set_dropout(self, active: bool) -> None:
        for block in self._find_blocks("dropout").values():
            block.switch(active)

    @property
    def updates_restored_weights(self) -> bool:
        return self._store is None

    def restore(self, weights: Mapping[str, Any]) -> None:
        # In place: ``set_data`` would start the store anew, which MXNet refuses with servers.
        for name, values in weights.items():
            parameter = self._network.parameters[name]
            parameter.data()[:] = mx.nd.array(values, ctx=self._device, dtype=self._dtype)

    def counted_updates(self) -> int | None:
        # Servers have an optimizer of their own.
        return int(self._trainer._optimizer.num_update) if self._store is None else None

    def drain(self) -> None:
        for value in self._first_values:
            value.asnumpy()

    def statistics(self) -> NamedArrays:
        statistics = {}
        for name, block in self._find_blocks("batch_norm").items():
            statistics[f"{name}.mean"] = block.running_mean.data().asnumpy()
            statistics[f"{name}.variance"] = block.running_var.data().asnumpy()
        return statistics

    def _find_blocks(self, kind: str) -> dict[str, gluon.HybridBlock]:
        names = [layer.name for layer in self.list_layers(kind)]
        return {name: self._block.blocks[name] for name in names if name in self._block.blocks}

    def drop(self, layer: str, values: Any) -> Any:
        block = self._find_blocks("dropout")[layer]
        with autograd.train_mode():
            return block(mx.nd.array(values, ctx=self._device, dtype=self._dtype)).asnumpy()

    def read_batch(self, batch: tuple[mx.nd.NDArray, mx.nd.NDArray]) -> tuple[Any, ...]:
        return tuple(part.asnumpy() for part in batch)

    def macs(self) -> int:
        return networks.count_macs(self._block, self.samples.shape(self.config))

    def logits(self, batch: tuple[mx.nd.NDArray, mx.nd.NDArray]) -> list[Any]:
        with autograd.record():
            outputs = self._block(batch[0])
        return [head.asnumpy() for head in list_heads(outputs)]

    def leave(self) -> None:
        if self._store is None:
            return
        mx.nd.waitall()
        # Servers and scheduler end when the last worker closes its store, which must be done once.
        self._store.__del__()
        self._store.handle = None
