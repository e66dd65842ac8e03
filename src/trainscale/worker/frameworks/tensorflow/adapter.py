"""The TensorFlow adapter: devices, precision, layout, what is counted. Strategies are in engines.py and
parameter_server.py, layers in layers.py.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any

import tensorflow as tf

from ...config import Config
from ...job import Job
from ..base import Adapter
from . import network as networks
from .engines import LocalEngine, engine_for
from .errors import plainly
from .layers import style_for
from .pixels import numbers

_GPU_LAG = 2
_WEIGHTED = ("Conv2D", "DepthwiseConv2dNative", "MatMul")


class TensorFlowAdapter(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tf.get_logger().setLevel("ERROR")
        if job.config.deterministic:
            tf.config.experimental.enable_op_determinism()  # each strategy seeds what is random itself
        self.cuda = job.device.kind == "cuda" and job.role == "worker"
        # A CPU step returns when it is done; on a GPU, two in flight keep its queue filled and bounded.
        self.lag = _GPU_LAG if self.cuda else 0
        if self.cuda:
            tf.config.experimental.enable_tensor_float_32_execution(job.config.precision == "tf32")
            self._readers = ThreadPoolExecutor(_GPU_LAG + 1)
        self._numbers: Any = None
        self._style = style_for(job.config, self.cuda, job.dropout)
        self._engine = engine_for(job, "GPU:0" if self.cuda else "CPU:0")

    @classmethod
    def look(cls) -> dict[str, Any]:
        gpus = [
            tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")
        ]
        return {"version": tf.__version__, "versions": _versions(), "gpus": gpus}

    @classmethod
    def try_model(cls, config: Config) -> dict[str, int]:
        """One image through the network, traced but not computed where the network lets itself be traced."""
        style = style_for(config, gpu=False, dropout=True)
        with tf.device("CPU:0"):
            network = networks.UserNetwork(config, style, seed=0)
            variables = network.variables()
            _trace(lambda images: network(images, variables, {}), config, style)
        return {"parameters": sum(int(variable.shape.num_elements()) for variable in variables.values())}

    def versions(self) -> dict[str, str]:
        return _versions()

    def join(self) -> None:
        with plainly():
            self._engine.join()

    def build(self) -> int:
        network = networks.build(self.job.config, self._style, self.job.seed)
        with plainly():
            return self._engine.prepare(network, self._style)

    def serve(self) -> dict[str, Any]:
        return self._engine.serve()

    def place(self, images: Any, labels: Any) -> Any:
        import numpy as np

        if not self._style.channels_first:
            images = images.transpose(0, 2, 3, 1)
        return self._engine.place(np.ascontiguousarray(images, dtype=self._style.weight_dtype), labels)

    def place_pixels(self, pixels: Any, labels: Any, normal: Any) -> Any:
        """To a GPU the 8-bit pixels travel, a quarter of what 32-bit numbers would be. Sessions take numbers."""
        if not self.cuda or not isinstance(self._engine, LocalEngine):
            return super().place_pixels(pixels, labels, normal)
        if self._numbers is None:
            self._numbers = numbers(normal, self._style.channels_first, self._style.weight_dtype)
        raw, truth = self._engine.place(pixels, labels)
        return self._numbers(raw), truth

    def step(self, batch: Any) -> Any:
        with plainly():
            self._loss = self._engine.step(batch)
        return self.mark()

    def tally(self) -> tuple[float, int]:
        with plainly():
            return self._engine.tally()

    def predict(self, batch: Any) -> Any:
        with plainly():
            return self._engine.predict(batch)

    def mark(self) -> Future | None:
        """On a GPU, a copy of the loss to the host that begins now: it comes when all that was asked for before it is
        done, this step's update included. The steps after it do not hold it up.
        """
        if self.cuda and isinstance(getattr(self, "_loss", None), tf.Tensor):
            return self._readers.submit(self._loss.numpy)
        return None

    def wait(self, ticket: Future | None) -> None:
        if ticket is not None:
            with plainly():
                ticket.result()

    def loss(self) -> float:
        return float(self._loss)

    def device_peak_bytes(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self.cuda else None

    def weights(self) -> dict[str, Any]:
        return self._engine.weights()

    def macs(self) -> int:
        """Of the operations in a trace of the forward pass, by the shapes that they have there."""
        traced = _trace(self._engine.forward, self.job.config, self._style)
        return sum(_operation_macs(operation) for operation in traced.get_operations())

    def logits(self, batch: Any) -> list[Any]:
        return [head.numpy() for head in tf.function(self._engine.forward)(batch[0])]

    def leave(self) -> None:
        self._engine.close()


def _trace(forward: Any, config: Config, style: Any) -> tf.Graph:
    """The forward pass of one image as TensorFlow's own operations."""
    shape = style.batch_shape(1, config)
    return tf.function(forward).get_concrete_function(tf.TensorSpec(shape, style.weight_dtype)).graph


def _operation_macs(operation: tf.Operation) -> int:
    if operation.type not in _WEIGHTED:
        return 0
    # A convolution applies its weights once for each place of its output map, a product once for each row.
    output = operation.outputs[0].shape.as_list()
    if operation.type == "MatMul":
        places = output[:1]
    else:
        places = output[2:] if operation.get_attr("data_format") == b"NCHW" else output[1:3]
    return prod(operation.inputs[1].shape.as_list()) * prod(places)


def _versions() -> dict[str, str]:
    import platform

    import numpy

    found = {"tensorflow": tf.__version__, "python": platform.python_version(), "numpy": numpy.__version__}
    build = tf.sysconfig.get_build_info()
    for name in ("cuda", "cudnn"):
        if build.get(f"{name}_version"):
            found[name] = str(build[f"{name}_version"])
    return found
