"""TensorFlow: devices, precision, layout, and the strategies by TensorFlow's own engines. A step is one tf.function.
Parameter servers are in parameter_server.py.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiled_programs import COLD, NONE, WARM
from ...config import Config
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, learning_rate_schedule, list_common_versions
from ..environments import XLA_CACHE_FLAG
from . import find_informative_line
from . import network as networks
from .network import PLAIN, UserNetwork, count_correct, criterion, make_style

_GPU_LAG = 2


def shorten_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Have a method raise errors of one line. The complete error stays in the log, as their cause."""

    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except tf.errors.OpError as error:
            message = find_informative_line(str(error))
            if isinstance(error, tf.errors.ResourceExhaustedError):
                raise MemoryError(message) from error
            if "could not start grpc server" in message.lower():
                raise OSError(errno.EADDRINUSE, f"address already in use: {message}") from error
            raise RuntimeError(message) from error

    return call


class TensorFlowAdapter(Adapter, Proof):
    """One device without communication. ``independent`` is this on every worker."""

    switches_dropout = True
    restores_weights = True
    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tf.get_logger().setLevel("ERROR")
        if job.config.deterministic:
            tf.config.experimental.enable_op_determinism()  # each strategy sets its own seeds
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        self.device = "GPU:0" if self.cuda else "CPU:0"
        # A CPU step returns when it is done. On a GPU, two in flight keep its queue filled and bounded.
        self.lag = _GPU_LAG if self.cuda else 0
        if self.cuda:
            tf.config.experimental.enable_tensor_float_32_execution(job.config.precision == "tf32")
            self._readers = ThreadPoolExecutor(_GPU_LAG + 1)
        self._convert_pixels: Any = None
        self._programs = CachedPrograms(job)
        self._style = make_style(job.config, self.cuda, job.dropout)

    @classmethod
    def versions(cls) -> dict[str, str]:
        build = tf.sysconfig.get_build_info()
        keys = {name: build.get(f"{name}_version") for name in ("cuda", "cudnn")}
        cuda = {name: str(version) for name, version in keys.items() if version}
        return {"tensorflow": tf.__version__, **list_common_versions(), **cuda}

    @classmethod
    def gpus(cls) -> list[str]:
        return list_gpu_names()

    @classmethod
    def try_model(cls, config: Config) -> int:
        """Send one image through the network. It is traced and not computed, where the network can be traced."""
        style = make_style(config, gpu=False, dropout=True)
        with tf.device("CPU:0"):
            network = UserNetwork(config, style, seed=0)
            variables = network.make_variables()
            networks.trace(lambda images: network(images, variables, {}), config, style)
        return networks.count_values(variables)

    def join(self) -> None:
        """Join the other ranks, before anything is computed. Here there are none."""

    @shorten_errors
    def build(self) -> int:
        self.network = networks.build(self.config, self._style, self.job.seed)
        self.variables = self.network.make_variables()
        self._momenta = {name: tf.Variable(tf.zeros_like(variable)) for name, variable in self.variables.items()}
        # Each rank keeps its own batch-norm statistics, under every strategy.
        statistics = self.network.make_initial_statistics()
        self._statistics = {name: tf.Variable(values) for name, values in statistics.items()}
        # Sum of losses and number of correct predictions since the last call of tally().
        self._tally = tf.Variable(tf.zeros(2, tf.float64)) if self.config.trains_epochs else None
        self._rates, self._updates = learning_rate_schedule(self.job), 0
        self._rate: tuple[float, tf.Tensor] | None = None  # of the last update: the number, and the same on the device
        self._count = tf.Variable(0, dtype=tf.int64)  # of updates, by the compiled program
        self.set_dropout(True)
        tf.random.set_seed(self.job.seed + self.job.rank)  # dropout differs between ranks, weights do not
        self._step = self._make_step()
        self._inference = tf.function(self._predict_first_head, autograph=self._needs_autograph)
        return networks.count_values(self.variables)

    @property
    def _needs_autograph(self) -> bool:
        """Whether AutoGraph must turn Python's if and for into operations.

        Users' networks may rely on it. Graphs do not, and without it their first step takes half the time.
        """
        return isinstance(self.network, UserNetwork)

    def _make_step(self) -> Any:
        @tf.function(jit_compile=self.config.compile or None, autograph=self._needs_autograph)
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

    @shorten_errors
    def step(self, batch: Any) -> Any:
        self._loss = self._take_step(batch)
        return self.mark()

    def _take_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Return the loss. On a GPU neither it nor the update is computed yet."""
        rate = self._rates(self._updates)
        self._updates += 1
        if self._rate is None or self._rate[0] != rate:
            with tf.device(self.device):
                self._rate = rate, tf.constant(rate, self._style.weight_dtype)
        return self._step(*batch, self._rate[1], self._dropping)

    def mark(self) -> Future | None:
        """On a GPU, start to copy the loss to the host.

        The copy is done when everything before it is done, this step's update included. Later steps do not delay it.
        """
        if self.cuda and isinstance(getattr(self, "_loss", None), tf.Tensor):
            return self._readers.submit(self._loss.numpy)
        return None

    @shorten_errors
    def wait(self, ticket: Future | None) -> None:
        if ticket is not None:
            ticket.result()

    def loss(self) -> float:
        return float(self._loss)

    @shorten_errors
    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally.numpy()
        self._tally.assign(tf.zeros(2, tf.float64))
        return float(losses), int(correct)

    @shorten_errors
    def predict(self, batch: Any) -> Any:
        return self._inference(batch[0]).numpy()

    def _predict_first_head(self, images: tf.Tensor) -> tf.Tensor:
        return self.network(images, self.variables, self._statistics, training=False)[0][0]

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return read_gpu_peak_bytes() if self.cuda else None

    def weights(self) -> NamedArrays:
        return {name: self.network.to_canonical(name, variable.numpy()) for name, variable in self.variables.items()}

    @shorten_errors
    def set_dropout(self, active: bool) -> None:
        with tf.device(self.device):
            self._dropping = tf.constant(float(active), self._style.weight_dtype)  # 1, or 0 while it is switched off

    @shorten_errors
    def restore(self, weights: Mapping[str, Any]) -> None:
        for name, values in self.network.to_native(weights).items():
            self.variables[name].assign(values)

    @shorten_errors
    def counted_updates(self) -> int:
        return int(self._count.numpy())

    @shorten_errors
    def drain(self) -> None:
        """Copy the smallest variable to the host, which waits for the device's queue."""
        min(self.variables.values(), key=lambda variable: variable.shape.num_elements()).numpy()

    def statistics(self) -> NamedArrays:
        return {name: variable.numpy().copy() for name, variable in self._statistics.items()}

    def drop(self, layer: str, values: Any) -> Any:
        style = dataclasses.replace(self._style, dropping=self._dropping)
        return PLAIN["dropout"]([tf.constant(values)], self.catalogue_graph.layer(layer), style).numpy()

    def macs(self) -> int:
        return networks.count_macs(networks.trace(self._forward, self.config, self._style))

    def logits(self, batch: Any) -> list[Any]:
        return [head.numpy() for head in tf.function(self._forward)(batch[0])]

    def _forward(self, images: tf.Tensor) -> list[tf.Tensor]:
        return self.network(images, self.variables, self._statistics, dropping=self._dropping)[0]


class TensorFlowAllreduceAdapter(TensorFlowAdapter):
    """MultiWorkerMirroredStrategy with a custom training loop; each worker has one replica."""

    @shorten_errors
    def join(self) -> None:
        kinds = tf.distribute.experimental.CommunicationImplementation
        # No time limit: the first step may take minutes, and a rank that has ended is noticed without one.
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=kinds.AUTO if self.job.device.kind == "cuda" else kinds.RING
        )
        self._strategy = make_mirrored_strategy(self.job, options)

    def build(self) -> int:
        with self._strategy.scope():
            return super().build()

    @shorten_errors
    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return make_strategy_exchange(self._strategy, self.device, size)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with self._strategy.scope():
            super().restore(weights)

    def _make_step(self) -> Any:
        # XLA does not compile collectives, only what is between them.
        backward = self._backward
        if self.config.compile:
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


class CachedPrograms:
    """XLA's persistent cache, which gives no counters to Python. So its files are compared with those at the start.

    Without --compile there is nothing to keep. A file that another rank of the trial has added makes this rank cold,
    too. The trial is cold in any case.
    """

    def __init__(self, job: Job) -> None:
        self._compiles = job.config.compile
        flags = os.environ.get("TF_XLA_FLAGS", "").split()
        folders = [flag[len(XLA_CACHE_FLAG) :] for flag in flags if flag.startswith(XLA_CACHE_FLAG)]
        self._folder = folders[-1] if folders else ""
        self._before = self._list_names()

    def _list_names(self) -> set[str]:
        """Return the names of the complete files. XLA's temporary files are none of them."""
        try:
            names = os.listdir(self._folder) if self._folder else []  # noqa: PTH208
        except OSError:
            return set()
        return {name for name in names if name.endswith(".pb")}

    def describe(self) -> str:
        if not self._compiles:
            return NONE
        names = self._list_names()
        return WARM if names and names == self._before else COLD


def list_gpu_names() -> list[str]:
    details = tf.config.experimental.get_device_details
    return [details(gpu).get("device_name", gpu.name) for gpu in tf.config.list_physical_devices("GPU")]


def read_gpu_peak_bytes() -> int:
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def list_addresses(job: Job) -> list[str]:
    """Return the address and port of every rank."""
    return [f"{address}:{port}" for address, port in zip(job.addresses, job.ports)]


def make_mirrored_strategy(job: Job, options: Any) -> tf.distribute.Strategy:
    """Join the workers of a job; each has one replica."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list_addresses(job)[: job.workers]}),
        task_type="worker",
        task_id=job.rank,
        rpc_layer="grpc",
    )
    return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)


def make_pixel_converter(normalization: Any, channels_first: bool, dtype: Any) -> Any:
    """Return a function that normalizes 8-bit pixels (images, channels, rows, columns) and brings them into layout."""
    values = (normalization.factors, normalization.offsets)
    factors, offsets = (np.array(channels, dtype)[:, None, None] for channels in values)

    @tf.function(autograph=False)
    def convert(pixels: tf.Tensor) -> tf.Tensor:
        images = tf.cast(pixels, dtype) * factors + offsets
        return images if channels_first else tf.transpose(images, [0, 2, 3, 1])

    return convert


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
