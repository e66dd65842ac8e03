"""TensorFlow: devices, precision, layout, and the strategies by TensorFlow's own engines.

A step is one tf.function. Parameter servers are in parameter_server.py.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import Config
from ...job import Job
from ...sample import COLD, NONE, WARM
from ...type_aliases import NamedArrays
from ..base import Adapter, learning_rate_schedule, list_common_versions
from ..environments import XLA_CACHE_FLAG
from . import network as networks
from .network import GraphNetwork, UserNetwork, count_correct, make_style

_GPU_LAG = 2


class TensorFlowAdapter(Adapter):
    """One device without communication. ``independent`` is this on every worker."""

    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tf.get_logger().setLevel("ERROR")
        if job.config.deterministic:
            tf.config.experimental.enable_op_determinism()  # each strategy sets its own seeds
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        self.device = "GPU:0" if self.cuda else "CPU:0"
        # Two steps in flight keep a GPU's queue filled.
        self.lag = _GPU_LAG if self.cuda else 0
        if self.cuda:
            tf.config.experimental.enable_tensor_float_32_execution(job.config.precision == "tf32")
            self._readers = ThreadPoolExecutor(_GPU_LAG + 1)
        self._convert_pixels: Any = None
        # XLA's cache gives no counters to Python, so its files are compared with those now.
        flags = os.environ.get("TF_XLA_FLAGS", "").split()
        named = [flag for flag in flags if flag.startswith(XLA_CACHE_FLAG)]
        self._cache_folder = named[-1][len(XLA_CACHE_FLAG) :] if named else ""
        self._cached_before = self._list_cached()
        self._style = make_style(job.config, self.cuda, job.dropout)

    @classmethod
    def versions(cls) -> dict[str, str]:
        versions = {"tensorflow": tf.__version__, **list_common_versions()}
        for name in ("cuda", "cudnn"):
            version = tf.sysconfig.get_build_info().get(f"{name}_version")
            if version:
                versions[name] = str(version)
        return versions

    @classmethod
    def gpus(cls) -> list[str]:
        details, devices = tf.config.experimental.get_device_details, tf.config.list_physical_devices
        return [details(gpu).get("device_name", gpu.name) for gpu in devices("GPU")]

    @classmethod
    def try_model(cls, config: Config) -> int:
        style = make_style(config, gpu=False, dropout=True)
        with tf.device("CPU:0"):
            network = UserNetwork(config, style, seed=0)
            variables = network.make_variables()
            networks.trace(lambda images: network(images, variables, {}), config, style)
        return networks.count_values(variables)

    def build(self) -> int:
        with self._open_scope():
            self.network = self._build_network()
            self.variables = self.network.make_variables()
            # Each rank keeps its own batch-norm statistics, under every strategy.
            statistics = self.network.make_initial_statistics()
            self._statistics = {name: tf.Variable(values) for name, values in statistics.items()}
            if self.config.trains_epochs:
                self._tally = tf.Variable(tf.zeros(2, tf.float64))
            self._count = tf.Variable(0, dtype=tf.int64)  # of updates, by the compiled program
            self._prepare_optimizer()
            self.set_dropout(True)
            tf.random.set_seed(self.job.seed + self.job.rank)  # dropout differs between ranks, weights do not
            # Users' networks may rely on AutoGraph; without it a graph's first step takes half the time.
            self._autograph = not isinstance(self.network, GraphNetwork)
            self._rates, self._updates = learning_rate_schedule(self.job), 0
            self._place_rate = functools.lru_cache(1)(self._place_rate)  # it seldom changes
            self._step = self._make_step()
            self._inference = tf.function(self._predict_first_head, autograph=self._autograph)
        return networks.count_values(self.variables)

    def _open_scope(self) -> AbstractContextManager:
        """Return the scope in which variables are made and assigned."""
        return nullcontext()

    def _build_network(self) -> Any:
        return networks.build(self.config, self._style, self.job.seed)

    def _prepare_optimizer(self) -> None:
        zeros = {name: tf.zeros_like(variable) for name, variable in self.variables.items()}
        self._momenta = {name: tf.Variable(values) for name, values in zeros.items()}

    def _make_step(self) -> Any:
        @tf.function(jit_compile=self.config.compile or None, autograph=self._autograph)
        def step(images, labels, rate, dropping):
            loss, gradients = self._backward(images, labels, dropping)
            self._update(gradients, rate)
            return loss

        return step

    def _backward(self, images, labels, dropping) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, correct, gradients, new_statistics = self._differentiate(
            images, labels, self.variables, self._statistics, dropping
        )
        for name, values in new_statistics.items():
            self._statistics[name].assign(values)
        if correct:
            counts = [tf.cast(value, tf.float64) for value in (loss, *correct)]
            self._tally.assign_add(tf.stack(counts))
        return loss, gradients

    def _differentiate(self, images, labels, weights, statistics, dropping) -> tuple:
        """Return the loss, of epochs the number of correct predictions, gradients and new statistics."""
        with tf.GradientTape() as tape:
            tape.watch(weights)
            heads, new_statistics = self.network(images, weights, statistics, dropping=dropping)
            loss = self._criterion(heads, labels)
        correct = [count_correct(heads, labels)] if self.config.trains_epochs else []
        unused, sources = tf.UnconnectedGradients.ZERO, list(weights.values())
        gradients = tape.gradient(loss, sources, unconnected_gradients=unused)
        return loss, correct, gradients, new_statistics

    def _criterion(self, heads: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = [tf.reduce_mean(cross_entropy(labels=labels, logits=head)) for head in heads]
        return tf.add_n([weight * loss for weight, loss in zip(self.network.loss_weights, losses)])

    def _update(self, gradients: list[tf.Tensor], rate: tf.Tensor) -> None:
        tf.raw_ops.AssignAddVariableOp(resource=self._count.handle, value=tf.constant(1, tf.int64))
        for (name, variable), gradient in zip(self.variables.items(), gradients):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=self._momenta[name].handle,
                lr=rate,
                grad=gradient + self.config.weight_decay * variable,
                momentum=tf.constant(self.config.momentum, variable.dtype),
            )

    def place(self, images: Any, labels: Any) -> Any:
        if not self._style.is_channels_first:
            images = images.transpose(0, 2, 3, 1)
        return self._put(np.ascontiguousarray(images, dtype=self._style.weight_dtype), labels)

    def _put(self, images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.device(self.device):
            return tf.constant(images), tf.constant(labels)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        """Send the 8-bit pixels to a GPU, a quarter of the bytes."""
        if not self.cuda:
            return super().place_pixels(pixels, labels, normalization)
        if self._convert_pixels is None:
            style = self._style
            self._convert_pixels = make_pixel_converter(normalization, style.is_channels_first, style.weight_dtype)
        raw, placed_labels = self._put(pixels, labels)
        return self._convert_pixels(raw), placed_labels

    def step(self, batch: Any) -> Any:
        self._loss = self._take_step(batch)
        return self.mark()

    def _take_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        rate = self._rates(self._updates)
        self._updates += 1
        return self._step(*batch, self._place_rate(rate), self._dropping)

    def _place_rate(self, rate: float) -> tf.Tensor:
        with tf.device(self.device):
            return tf.constant(rate, self._style.weight_dtype)

    def mark(self) -> Future | None:
        """On a GPU, start to copy the loss to the host, which ends when the step has."""
        if self.cuda and isinstance(getattr(self, "_loss", None), tf.Tensor):
            return self._readers.submit(self._loss.numpy)
        return None

    def wait(self, ticket: Future | None) -> None:
        if ticket is not None:
            ticket.result()

    def loss(self) -> float:
        return float(self._loss)

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.numpy()
        self._tally.assign(tf.zeros(2, tf.float64))
        return float(losses), int(correct)

    def predict(self, batch: Any) -> Any:
        return self._inference(batch[0]).numpy()

    def _predict_first_head(self, images: tf.Tensor) -> tf.Tensor:
        return self.network(images, self.variables, self._statistics, training=False)[0][0]

    def compilation(self) -> str:
        if not self.config.compile:
            return NONE
        names = self._list_cached()
        return WARM if names and names == self._cached_before else COLD

    def _list_cached(self) -> set[str]:
        return set(glob.glob(f"{glob.escape(self._cache_folder)}/*.pb")) if self._cache_folder else set()

    def device_peak_bytes(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self.cuda else None

    def weights(self) -> NamedArrays:
        return {name: self.network.to_canonical(variable.numpy()) for name, variable in self.variables.items()}

    def set_dropout(self, active: bool) -> None:
        with tf.device(self.device):
            self._dropping = tf.constant(float(active), self._style.weight_dtype)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with self._open_scope():
            for name, values in self.network.to_native(weights).items():
                self.variables[name].assign(values)

    def counted_updates(self) -> int:
        return int(self._count.numpy())

    def drain(self) -> None:
        min(self.variables.values(), key=lambda variable: variable.shape.num_elements()).numpy()

    def statistics(self) -> NamedArrays:
        return {name: variable.numpy().copy() for name, variable in self._statistics.items()}

    def drop(self, layer: str, values: Any) -> Any:
        style = dataclasses.replace(self._style, dropping=self._dropping)
        own = self.catalogue_graph.layer(layer)
        return networks.dropout(own, tf.constant(values), style).numpy()

    def macs(self) -> int:
        return networks.count_macs(networks.trace(self._forward, self.config, self._style))

    def logits(self, batch: Any) -> list[Any]:
        return [head.numpy() for head in tf.function(self._forward)(batch[0])]

    def _forward(self, images: tf.Tensor) -> list[tf.Tensor]:
        return self.network(images, self.variables, self._statistics, dropping=self._dropping)[0]


class TensorFlowAllreduceAdapter(TensorFlowAdapter):
    """MultiWorkerMirroredStrategy with a custom training loop; each worker has one replica."""

    def join(self) -> None:
        job, experimental = self.job, tf.distribute.experimental
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list_addresses(job)[: job.workers]}),
            task_type="worker",
            task_id=job.rank,
            rpc_layer="grpc",
        )
        kinds = experimental.CommunicationImplementation
        kind = kinds.AUTO if job.device.kind == "cuda" else kinds.RING
        # No time limit: the first step may take minutes.
        options = experimental.CommunicationOptions(implementation=kind)
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)

    def _open_scope(self) -> AbstractContextManager:
        return self._strategy.scope()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        with tf.device(self.device):
            vector = tf.fill([max(1, size // 4)], 1e-20)  # no value is zero

        @tf.function(autograph=False)
        def average() -> tf.Tensor:
            return self._strategy.run(self._average, args=([vector],))[0]

        def exchange() -> None:
            average()[:1].numpy()

        exchange()  # traces it
        return exchange

    def _average(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def _update(self, gradients: list[tf.Tensor], rate: tf.Tensor) -> None:
        super()._update(self._average(gradients), rate)

    def _make_step(self) -> Any:
        # XLA does not compile collectives, only what is between them.
        backward = self._backward
        if self.config.compile:
            backward = tf.function(backward, jit_compile=True, autograph=self._autograph)

        def replica(images, labels, rate, dropping):
            loss, gradients = backward(images, labels, dropping)
            self._update(gradients, rate)
            return loss

        @tf.function(autograph=self._autograph)
        def step(*batch: tf.Tensor) -> tf.Tensor:
            return self._strategy.run(replica, args=batch)

        return step


def list_addresses(job: Job) -> list[str]:
    return [f"{address}:{port}" for address, port in zip(job.addresses, job.ports)]


def make_pixel_converter(normalization: Any, channels_first: bool, dtype: Any) -> Any:
    """Return a function that normalizes 8-bit pixels in NCHW and brings them into layout."""
    values = (normalization.factors, normalization.offsets)
    factors, offsets = (np.array(channels, dtype)[:, None, None] for channels in values)

    @tf.function(autograph=False)
    def convert(pixels: tf.Tensor) -> tf.Tensor:
        images = tf.cast(pixels, dtype) * factors + offsets
        return images if channels_first else tf.transpose(images, [0, 2, 3, 1])

    return convert
