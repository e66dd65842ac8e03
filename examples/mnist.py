"""MNIST three ways in TensorFlow: in one process, with parameter servers in step, with parameter servers out of step.

    python examples/mnist.py
    python examples/mnist.py --data_format NCHW
    trainscale launch -n 2 -s 1 python examples/mnist.py --sync_replicas
    trainscale launch -n 2 -s 1 python examples/mnist.py

One graph serves all of them. What makes the last two distributed is a few lines: TF_CONFIG, which `trainscale launch`
sets in every process, names the addresses; variables are placed on the servers; worker 0, the chief, initialises them.
Needs numpy and TensorFlow, nothing else. docs/mnist.md tells more.
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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import: errors only
import tensorflow as tf

# Graphs and sessions: SyncReplicasOptimizer, TensorFlow's own synchronous training with parameter servers, is of them.
v1 = tf.compat.v1
v1.disable_eager_execution()
tf.get_logger().setLevel("ERROR")  # it would tell at length that they are deprecated

SEED = 1337
HOME = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "trainscale/data/mnist"


def main() -> None:
    options = read_options()
    if os.environ.get("DMLC_ROLE") == "scheduler":
        return  # `trainscale launch -s 1` starts one for MXNet; TensorFlow knows no such role
    cluster, role, task = read_cluster()
    server = cluster and tf.distribute.Server(cluster, role, task)
    if role == "ps":
        server.join()  # holds variables until `trainscale launch` ends it, when the workers have ended
    workers = cluster.num_tasks("worker") if cluster else 1
    chief = task == 0

    images, labels = read_images(options.data_dir, "train")
    with v1.device(placement(cluster, task)):
        net = Network(options.data_format)
        step = v1.train.get_or_create_global_step()  # counts updates, whoever made them
        optimizer = v1.train.AdamOptimizer(options.learning_rate)
        if options.sync_replicas and cluster:
            # The servers wait for a gradient of every worker, apply the mean, then let all workers go on.
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, workers, workers)
        train = optimizer.minimize(net.loss, global_step=step)
        with tf.control_dependencies([train]):
            updates = step.read_value()

    # A worker talks to the servers only: it waits for no other worker here, and does not mind when one has ended.
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"] if cluster else [])
    config.gpu_options.allow_growth = True
    with v1.Session(server.target if server else "", config=config) as session:
        initialise(session, chief, optimizer)
        if chief:
            print(f"{net.parameters:,} parameters, {options.data_format}, {workers} worker(s)", flush=True)
        for taken, batch in enumerate(batches(len(images), options.batch_size, task, workers), 1):
            feed = {net.images: images[batch], net.labels: labels[batch], net.dropout: 0.5}
            done, loss, accuracy = session.run([updates, net.loss, net.accuracy], feed)
            if taken % options.display_every == 0:
                print(f"Step {done}: loss = {loss:.2f} -- train accuracy = {accuracy:.2f}", flush=True)
            # Workers in step take as many steps as there are updates. Out of step, each update was one worker's.
            if (taken if options.sync_replicas else done) >= options.train_steps:
                break
        if chief:
            print(f"Test accuracy = {test(session, net, options.data_dir):.4f}", flush=True)


# ---- the network: conv 5×5×32, pool, conv 5×5×64, pool, 1024, dropout, 10; 3,274,634 parameters


class Network:
    """A graph from images in 8 bits to the loss. Variables go where the device around it says."""

    def __init__(self, data_format: str) -> None:
        self.data_format = data_format
        self.images = v1.placeholder(tf.uint8, [None, 28, 28])
        self.labels = v1.placeholder(tf.int32, [None])
        self.dropout = v1.placeholder_with_default(0.0, [])  # the share that is dropped, in training only
        x = tf.cast(tf.expand_dims(self.images, self.channels), tf.float32) / 255
        x = self.pool(tf.nn.relu(self.conv("conv1", x, 32)))
        x = self.pool(tf.nn.relu(self.conv("conv2", x, 64)))
        x = tf.reshape(x, [-1, 7 * 7 * 64])
        x = tf.nn.dropout(tf.nn.relu(self.dense("fc1", x, 1024)), rate=self.dropout)
        logits = self.dense("fc2", x, 10)
        self.loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(self.labels, logits))
        self.right = tf.equal(tf.argmax(logits, 1, tf.int32), self.labels)
        self.accuracy = tf.reduce_mean(tf.cast(self.right, tf.float32))
        self.parameters = sum(variable.shape.num_elements() for variable in v1.trainable_variables())

    @property
    def channels(self) -> int:
        """Which axis of a batch of images holds the channels."""
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
    """Who there is, and which of them this process is. Without parameter servers it is one process, alone."""
    said = json.loads(os.environ.get("TF_CONFIG", "{}"))
    if not said.get("cluster", {}).get("ps"):
        if len(said.get("cluster", {}).get("worker", [])) > 1:
            sys.exit("several workers need a parameter server: trainscale launch -n 2 -s 1 python examples/mnist.py")
        return None, "worker", 0
    return tf.train.ClusterSpec(said["cluster"]), said["task"]["type"], said["task"]["index"]


def placement(cluster: tf.train.ClusterSpec | None, task: int):
    """Variables on the servers, in turn; all else on this worker."""
    return cluster and v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")


def initialise(session: v1.Session, chief: bool, optimizer: v1.train.Optimizer) -> None:
    """The chief does it for the servers; the others look until it is done."""
    synchronous = isinstance(optimizer, v1.train.SyncReplicasOptimizer)
    missing = optimizer.ready_for_local_init_op if synchronous else v1.report_uninitialized_variables()
    if chief:
        session.run(v1.global_variables_initializer())
    while len(session.run(missing)):
        time.sleep(0.2)
    if synchronous:
        session.run(optimizer.chief_init_op if chief else optimizer.local_step_init_op)
    if synchronous and chief:
        threading.Thread(target=ask_for_updates, args=(session, optimizer), daemon=True).start()


def ask_for_updates(session: v1.Session, optimizer: v1.train.SyncReplicasOptimizer) -> None:
    """Somebody must ask the servers for each update. TensorFlow's hook for this gives away tokens at the start, with
    which one worker could go ahead of the others; without them all go in step from the first.
    """
    (update,) = optimizer.get_chief_queue_runner().enqueue_ops
    try:
        while True:
            session.run(update)
    except tf.errors.CancelledError:
        pass  # the session was closed: training is over


# ---- the images


def read_images(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels (n,) in 8 bits, from the published files; ``part`` is train or t10k."""
    return read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def read_idx(path: Path) -> np.ndarray:
    """The fourth byte says how many sizes follow, each in four bytes; then come the values."""
    if not path.exists():
        sys.exit(f"{path} is missing; `trainscale data get mnist` puts it there, or name its folder by --data_dir")
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def batches(images: int, size: int, task: int, workers: int):
    """Indices of images, for ever: every epoch in another order, of which each worker takes its own part."""
    random = np.random.default_rng(SEED)
    while True:
        part = random.permutation(images)[task::workers]
        for start in range(0, len(part) - size + 1, size):
            yield part[start : start + size]


def test(session: v1.Session, net: Network, folder: Path) -> float:
    """The share of the test images that are labelled right."""
    images, labels = read_images(folder, "t10k")
    right = 0
    for start in range(0, len(images), 1000):
        part = slice(start, start + 1000)
        right += session.run(net.right, {net.images: images[part], net.labels: labels[part]}).sum()
    return right / len(images)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(name: str, **settings) -> None:
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", dest=name, **settings)

    add("data_dir", type=Path, default=HOME, help="where the four files of MNIST lie (default: %(default)s)")
    add("data_format", choices=["NHWC", "NCHW"], default="NHWC", help="layout of the images (default: %(default)s)")
    add("batch_size", type=int, default=50, help="images per step of each worker (default: %(default)s)")
    add("train_steps", type=int, default=2000, help="updates in all (default: %(default)s)")
    add("learning_rate", type=float, default=1e-3, help="of Adam (default: %(default)s)")
    add("display_every", type=int, default=10, help="steps between two lines (default: %(default)s)")
    add("sync_replicas", action="store_true", help="workers go in step (default: each at its own pace)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except tf.errors.InvalidArgumentError as error:
        if "NHWC" not in str(error):
            raise
        sys.exit("--data_format NCHW: this TensorFlow has no kernels for it here (on CPUs oneDNN has them); take NHWC")
