"""Mistakes in the TensorFlow adapter, on one device. Its fused batch norm exists in fp32 only, so that a comparison in
float64 cannot see it.
"""

from __future__ import annotations

from mutation import Mutation, single
from runs import layers, local, parity

_ENGINES = "worker/frameworks/tensorflow/adapter.py"
_LAYERS = "worker/frameworks/tensorflow/network.py"
_NETWORK = "worker/frameworks/tensorflow/network.py"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "tensorflow-fused-batch-norm-eps",
        "TensorFlow's fused batch norm has ten times the eps",
        layers("tensorflow"),
        _LAYERS,
        ("        epsilon=eps,\n", "        epsilon=10 * eps,\n"),
    ),
    single(
        "tensorflow-fused-batch-norm-scale",
        "TensorFlow's fused batch norm does not train its scale",
        layers("tensorflow"),
        _LAYERS,
        ('scale=own["scale"],', 'scale=tf.stop_gradient(own["scale"]),'),
    ),
    single(
        "tensorflow-fused-batch-norm-gradient",
        "TensorFlow's fused batch norm passes no gradient to its images",
        layers("tensorflow"),
        _LAYERS,
        ("        x=images,\n", "        x=tf.stop_gradient(images),\n"),
    ),
    single(
        "tensorflow-batch-norm-momentum",
        "TensorFlow's running statistics of batch norm have twice the momentum",
        parity("tensorflow"),
        _LAYERS,
        (
            "exponential_avg_factor=momentum,",
            "exponential_avg_factor=2 * momentum,",
        ),
    ),
    single(
        "tensorflow-optimizer-never-steps",
        "TensorFlow never updates its weights in fp32",
        local("tensorflow"),
        _ENGINES,
        (
            "self._backward(images, labels, dropping)\n            self._update(gradients, rate)\n",
            "self._backward(images, labels, dropping)\n"
            '            if self.config.precision == "fp64":\n'
            "                self._update(gradients, rate)\n",
        ),
    ),
    single(
        "tensorflow-every-second-step-skipped",
        "TensorFlow skips every second step",
        local("tensorflow"),
        _ENGINES,
        (
            "        return self._step(*batch, self._rate_on_device, self._dropping)\n",
            "        if self._updates % 2:\n"
            "            self._newest = self._step(*batch, self._rate_on_device, self._dropping)\n"
            "        return self._newest\n",
        ),
    ),
    single(
        "tensorflow-momentum-dropped",
        "TensorFlow trains without momentum",
        local("tensorflow"),
        _ENGINES,
        ("tf.constant(self.config.momentum, variable.dtype)", "tf.constant(0.0, variable.dtype)"),
    ),
    single(
        "tensorflow-weight-decay-dropped",
        "TensorFlow trains without weight decay",
        local("tensorflow"),
        _ENGINES,
        ("grad=gradient + self.config.weight_decay * variable,", "grad=gradient,"),
    ),
    single(
        "tensorflow-bf16-under-fp32",
        "TensorFlow computes in bf16 where fp32 is timed",
        local("tensorflow"),
        _LAYERS,
        ('tf.bfloat16 if config.precision == "bf16" else', 'tf.bfloat16 if config.precision in ("bf16", "fp32") else'),
    ),
    single(
        "tensorflow-uneven-padding",
        "TensorFlow pads unevenly where the stride is 2",
        layers("tensorflow"),
        _LAYERS,
        ("is_same = stride == (1, 1) and all(", "is_same = all("),
    ),
    single(
        "tensorflow-padding-not-counted",
        "TensorFlow leaves padding out of every average",
        layers("tensorflow"),
        _LAYERS,
        (
            'counts_padding = kind == "avg_pool" and options["count_padding"]',
            "counts_padding = False",
        ),
    ),
    single(
        "tensorflow-bias-left-out",
        "TensorFlow leaves out the biases of convolutions",
        layers("tensorflow"),
        _NETWORK,
        (
            "return result if bias is None else",
            "return result if True else",
        ),
    ),
    single(
        "tensorflow-sum-of-losses",
        "TensorFlow adds the losses of a batch instead of averaging them",
        local("tensorflow"),
        _ENGINES,
        ("weight * tf.reduce_mean(loss)", "weight * tf.reduce_sum(loss)"),
    ),
    single(
        "tensorflow-dropout-rate",
        "TensorFlow's dropout drops a fifth less than it should",
        parity("tensorflow"),
        _LAYERS,
        ('tf.cast(layer.options["rate"] * style.dropping', 'tf.cast(0.8 * layer.options["rate"] * style.dropping'),
    ),
)
