"""The TensorFlow adapter: devices, precision, layout, counting. Strategies are in engines.py, parameter_server.py and
parameter_server_engines.py, layers in layers.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any

import tensorflow as tf

from ...config import Config
from ...events.ranks import ServerResult
from ...job import Job
from ...type_aliases import NamedArrays
from ..base import Adapter, Proof, list_common_versions
from . import network as networks
from .compilation import CachedPrograms
from .devices import list_gpu_names, make_pixel_converter, read_gpu_peak_bytes
from .engines import TensorFlowLocalEngine, engine_for
from .errors import shorten_errors
from .layers import PLAIN, make_style

_GPU_LAG = 2
_WEIGHTED = ("Conv2D", "DepthwiseConv2dNative", "MatMul")


class TensorFlowAdapter(Adapter, Proof):
    switches_dropout = True
    restores_weights = True
    ends_at_once = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tf.get_logger().setLevel("ERROR")
        if job.config.deterministic:
            tf.config.experimental.enable_op_determinism()  # each strategy sets its own seeds
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        # A CPU step returns when it is done. On a GPU, two in flight keep its queue filled and bounded.
        self.lag = _GPU_LAG if self.cuda else 0
        if self.cuda:
            tf.config.experimental.enable_tensor_float_32_execution(job.config.precision == "tf32")
            self._readers = ThreadPoolExecutor(_GPU_LAG + 1)
        self._convert_pixels: Any = None
        self._programs = CachedPrograms(job)
        self._style = make_style(job.config, self.cuda, job.dropout)
        self._engine = engine_for(job, "GPU:0" if self.cuda else "CPU:0")

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
            network = networks.UserNetwork(config, style, seed=0)
            variables = network.make_variables()
            _trace(lambda images: network(images, variables, {}), config, style)
        return sum(int(variable.shape.num_elements()) for variable in variables.values())

    def join(self) -> None:
        with shorten_errors():
            self._engine.join()

    def build(self) -> int:
        network = networks.build(self.config, self._style, self.job.seed)
        with shorten_errors():
            return self._engine.prepare(network, self._style)

    def serve(self) -> ServerResult:
        return self._engine.serve()

    def place(self, images: Any, labels: Any) -> Any:
        import numpy as np

        if not self._style.is_channels_first:
            images = images.transpose(0, 2, 3, 1)
        return self._engine.place(np.ascontiguousarray(images, dtype=self._style.weight_dtype), labels)

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        """Send the 8-bit pixels to a GPU, a quarter of the bytes. Sessions of parameter servers take numbers."""
        if not self.cuda or not isinstance(self._engine, TensorFlowLocalEngine):
            return super().place_pixels(pixels, labels, normalization)
        if self._convert_pixels is None:
            style = self._style
            self._convert_pixels = make_pixel_converter(normalization, style.is_channels_first, style.weight_dtype)
        raw, placed_labels = self._engine.place(pixels, labels)
        return self._convert_pixels(raw), placed_labels

    def step(self, batch: Any) -> Any:
        with shorten_errors():
            self._loss = self._engine.step(batch)
        return self.mark()

    def tally(self) -> tuple[float, int]:
        with shorten_errors():
            return self._engine.tally()

    def predict(self, batch: Any) -> Any:
        with shorten_errors():
            return self._engine.predict(batch)

    def mark(self) -> Future | None:
        """On a GPU, start to copy the loss to the host.

        The copy is done when everything before it is done, this step's update included. Later steps do not delay it.
        """
        if self.cuda and isinstance(getattr(self, "_loss", None), tf.Tensor):
            return self._readers.submit(self._loss.numpy)
        return None

    def wait(self, ticket: Future | None) -> None:
        if ticket is not None:
            with shorten_errors():
                ticket.result()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        with shorten_errors():
            return self._engine.make_exchange(size) if isinstance(self._engine, TensorFlowLocalEngine) else None

    def loss(self) -> float:
        return float(self._loss)

    def compilation(self) -> str:
        return self._programs.describe()

    def device_peak_bytes(self) -> int | None:
        return read_gpu_peak_bytes() if self.cuda else None

    def weights(self) -> NamedArrays:
        return self._engine.weights()

    def set_dropout(self, active: bool) -> None:
        with shorten_errors():
            self._engine.set_dropout(active)

    def restore(self, weights: Mapping[str, Any]) -> None:
        with shorten_errors():
            self._engine.restore(weights)

    def counted_updates(self) -> int:
        with shorten_errors():
            return self._engine.counted_updates()

    def drain(self) -> None:
        with shorten_errors():
            self._engine.drain()

    def statistics(self) -> NamedArrays:
        return self._engine.statistics()

    def drop(self, layer: str, values: Any) -> Any:
        style = dataclasses.replace(self._style, dropping=self._engine.dropping)
        return PLAIN["dropout"]([tf.constant(values)], self.catalogue_graph.layer(layer), style).numpy()

    def macs(self) -> int:
        """Count the operations of a traced forward pass, by their shapes."""
        graph = _trace(self._engine.forward, self.config, self._style)
        return sum(_count_operation_macs(operation) for operation in graph.get_operations())

    def logits(self, batch: Any) -> list[Any]:
        return [head.numpy() for head in tf.function(self._engine.forward)(batch[0])]

    def leave(self) -> None:
        self._engine.close()


def _trace(forward: Any, config: Config, style: Any) -> tf.Graph:
    """Return the forward pass of one image as TensorFlow's own operations."""
    shape = style.make_batch_shape(1, config)
    return tf.function(forward).get_concrete_function(tf.TensorSpec(shape, style.weight_dtype)).graph


def _count_operation_macs(operation: tf.Operation) -> int:
    if operation.type not in _WEIGHTED:
        return 0
    # A convolution applies its weights once for each place of its output map, a matrix product once for each row.
    output = operation.outputs[0].shape.as_list()
    if operation.type == "MatMul":
        places = output[:1]
    else:
        places = output[2:] if operation.get_attr("data_format") == b"NCHW" else output[1:3]
    return prod(operation.inputs[1].shape.as_list()) * prod(places)
