"""Trains MNIST in TensorFlow in one process, or with synchronous or asynchronous parameter servers.

    python examples/mnist.py
    python examples/mnist.py --data_format NCHW
    trainscale launch -n 2 -s 1 python examples/mnist.py --sync_replicas
    trainscale launch -n 2 -s 1 python examples/mnist.py

All of them use the same graph. A few lines make the last two distributed: TF_CONFIG, which `trainscale launch` sets in
every process, has the addresses; variables are placed on the servers; worker 0, the chief, initialises them. The
program needs only numpy and TensorFlow. docs/mnist.md explains it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # must be set before the import; prints errors only
import tensorflow as tf

# SyncReplicasOptimizer, TensorFlow's own synchronous training with parameter servers, needs graphs and sessions.
v1 = tf.compat.v1
v1.disable_eager_execution()
tf.get_logger().setLevel("ERROR")  # hides long warnings that they are deprecated

SEED = 1337
HOME = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "trainscale/data/mnist"


def main() -> None:
    options = read_options()
    if os.environ.get("DMLC_ROLE") == "scheduler":
        return  # `trainscale launch -s 1` starts a scheduler for MXNet; TensorFlow has no such role
    cluster, role, task = read_cluster()
    server = cluster and tf.distribute.Server(cluster, role, task)
    if role == "ps":
        server.join()  # holds variables until `trainscale launch` ends it after the workers
    workers = cluster.num_tasks("worker") if cluster else 1
    is_chief = task == 0

    images, labels = read_images(options.data_dir, "train")
    with v1.device(placement(cluster, task)):
        net = Network(options.data_format)
        step = v1.train.get_or_create_global_step()  # counts the updates of all workers
        optimizer = v1.train.AdamOptimizer(options.learning_rate)
        if options.sync_replicas and cluster:
            # The servers wait for a gradient from every worker, apply the mean, then let all workers continue.
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, workers, workers)
        train = optimizer.minimize(net.loss, global_step=step)
        with tf.control_dependencies([train]):
            updates = step.read_value()

    # A worker connects to the servers only, so it does not wait for another worker, nor fail when one has ended.
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"] if cluster else [])
    config.gpu_options.allow_growth = True
    with v1.Session(server.target if server else "", config=config) as session:
        initialise(session, is_chief, optimizer)
        if is_chief:
            print(f"{net.parameters:,} parameters, {options.data_format}, {workers} worker(s)", flush=True)
        for own_steps, batch in enumerate(batches(len(images), options.batch_size, task, workers), 1):
            feed = {net.images: images[batch], net.labels: labels[batch], net.dropout: 0.5}
            all_updates, loss, accuracy = session.run([updates, net.loss, net.accuracy], feed)
            if own_steps % options.display_every == 0:
                print(f"Step {all_updates}: loss = {loss:.2f} -- train accuracy = {accuracy:.2f}", flush=True)
            # Synchronous workers take one step for each update. Otherwise each update comes from one worker.
            if (own_steps if options.sync_replicas else all_updates) >= options.train_steps:
                break
        if is_chief:
            print(f"Test accuracy = {test(session, net, options.data_dir):.4f}", flush=True)


# ---- the network: conv 5×5×32, pool, conv 5×5×64, pool, 1024, dropout, 10; 3,274,634 parameters


class Network:
    """A graph from 8-bit images to the loss. The surrounding device scope places its variables."""

    def __init__(self, data_format: str) -> None:
        self.data_format = data_format
        self.images = v1.placeholder(tf.uint8, [None, 28, 28])
        self.labels = v1.placeholder(tf.int32, [None])
        self.dropout = v1.placeholder_with_default(0.0, [])  # share of units to drop, in training only
        x = tf.cast(tf.expand_dims(self.images, self.channels), tf.float32) / 255
        x = self.pool(tf.nn.relu(self.conv("conv1", x, 32)))
        x = self.pool(tf.nn.relu(self.conv("conv2", x, 64)))
        x = tf.reshape(x, [-1, 7 * 7 * 64])
        x = tf.nn.dropout(tf.nn.relu(self.dense("fc1", x, 1024)), rate=self.dropout)
        logits = self.dense("fc2", x, 10)
        self.loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits))
        self.is_right = tf.equal(tf.argmax(logits, 1, tf.int32), self.labels)
        self.accuracy = tf.reduce_mean(tf.cast(self.is_right, tf.float32))
        self.parameters = sum(variable.shape.num_elements() for variable in v1.trainable_variables())

    @property
    def channels(self) -> int:
        """The axis of a batch of images that holds the channels."""
        return 1 if self.data_format == "NCHW" else 3

    def conv(self, name: str, x: tf.Tensor, filters: int) -> tf.Tensor:
        weight, bias = self.weights(name, [5, 5, x.shape[self.channels], filters])
        x = tf.nn.conv2d(x, weight, strides=1, padding="SAME", data_format=self.data_format)
        return tf.nn.bias_add(x, bias, data_format=self.data_format)

    def pool(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 2, 2, padding="SAME", data_format=self.data_format)

    def dense(self, name: str, x: tf.Tensor, units: int) -> tf.Tensor:
        weight, bias = self.weights(name, [x.shape[1], units])
        return x @ weight + bias

    def weights(self, name: str, shape: list[int]) -> tuple[tf.Variable, tf.Variable]:
        normal = v1.variance_scaling_initializer(2.0, seed=SEED)
        with v1.variable_scope(name):
            return v1.get_variable("weight", shape, initializer=normal), v1.get_variable(
                "bias", shape[-1:], initializer=v1.zeros_initializer()
            )


# ---- the cluster


def read_cluster() -> tuple[tf.train.ClusterSpec | None, str, int]:
    """Return the cluster, and the role and number of this process. There is no cluster without parameter servers."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if not config.get("cluster", {}).get("ps"):
        if len(config.get("cluster", {}).get("worker", [])) > 1:
            sys.exit("several workers need a parameter server: trainscale launch -n 2 -s 1 python examples/mnist.py")
        return None, "worker", 0
    return tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"]


def placement(cluster: tf.train.ClusterSpec | None, task: int):
    """Return a device function that puts variables on the servers in turn, and all else on this worker."""
    return cluster and v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")


def initialise(session: v1.Session, is_chief: bool, optimizer: v1.train.Optimizer) -> None:
    """Initialise the variables if this is the chief; otherwise wait until the chief has done it."""
    synchronous = isinstance(optimizer, v1.train.SyncReplicasOptimizer)
    uninitialised = optimizer.ready_for_local_init_op if synchronous else v1.report_uninitialized_variables()
    if is_chief:
        session.run(v1.global_variables_initializer())
    while len(session.run(uninitialised)):
        time.sleep(0.2)
    if synchronous:
        session.run(optimizer.chief_init_op if is_chief else optimizer.local_step_init_op)
    if synchronous and is_chief:
        threading.Thread(target=request_updates, args=(session, optimizer), daemon=True).start()


def request_updates(session: v1.Session, optimizer: v1.train.SyncReplicasOptimizer) -> None:
    """Request each update from the servers, until the session closes. TensorFlow's own hook hands out tokens at the
    start, with which one worker could get ahead of the others. Without them all are synchronous from the first step.
    """
    (update,) = optimizer.get_chief_queue_runner().enqueue_ops
    try:
        while True:
            session.run(update)
    except tf.errors.CancelledError:
        pass  # the session was closed because training is over


# ---- the images


def read_images(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return 8-bit images (n, 28, 28) and labels (n,) from the published files; ``part`` is train or t10k."""
    return read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def read_idx(path: Path) -> np.ndarray:
    """Read an array. The fourth byte is the number of dimensions; their sizes follow in four bytes each, then the
    values.
    """
    if not path.exists():
        sys.exit(f"{path} is missing; `trainscale data get mnist` puts it there, or name its folder by --data_dir")
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def batches(images: int, size: int, task: int, workers: int):
    """Yield indices of images for ever. Every epoch has another order, of which each worker takes its own part."""
    random = np.random.default_rng(SEED)
    while True:
        part = random.permutation(images)[task::workers]
        for start in range(0, len(part) - size + 1, size):
            yield part[start : start + size]


def test(session: v1.Session, net: Network, folder: Path) -> float:
    """Return the share of the test images that are classified correctly."""
    images, labels = read_images(folder, "t10k")
    right = 0
    for start in range(0, len(images), 1000):
        part = slice(start, start + 1000)
        right += session.run(net.is_right, {net.images: images[part], net.labels: labels[part]}).sum()
    return right / len(images)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(name: str, **settings) -> None:
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", dest=name, **settings)

    add("data_dir", type=Path, default=HOME, help="folder of the four files of MNIST (default: %(default)s)")
    add("data_format", choices=["NHWC", "NCHW"], default="NHWC", help="layout of the images (default: %(default)s)")
    add("batch_size", type=int, default=50, help="images per step of each worker (default: %(default)s)")
    add("train_steps", type=int, default=2000, help="updates in all (default: %(default)s)")
    add("learning_rate", type=float, default=1e-3, help="learning rate of Adam (default: %(default)s)")
    add("display_every", type=int, default=10, help="steps between two lines of output (default: %(default)s)")
    add("sync_replicas", action="store_true", help="train synchronously (default: asynchronously)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except tf.errors.InvalidArgumentError as error:
        if "NHWC" not in str(error):
            raise
        sys.exit("--data_format NCHW: this TensorFlow has no kernels for it here (on CPUs oneDNN has them); take NHWC")
