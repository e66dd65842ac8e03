"""What TensorFlow and Keras on TensorFlow share: GPUs, the all-reduce strategy, and pixels that become numbers on a
device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...job import Job


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
