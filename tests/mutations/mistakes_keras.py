"""Mistakes in the Keras adapters, on one device."""

from __future__ import annotations

from mutation import Mutation, single
from runs import SLOW, layers, local, parity

_ADAPTER = "worker/frameworks/keras/adapter.py"
_NETWORK = "worker/frameworks/keras/network.py"
_JAX = "worker/frameworks/keras/jax_backend.py"
_TENSORFLOW = "worker/frameworks/keras/tensorflow_backend.py"
_TORCH = "worker/frameworks/keras/torch_backend.py"

_TAKE_STEP = "    def _place_rate(self"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "keras-jax-wait-does-not-wait",
        "Keras on JAX: wait returns before the step is done",
        local("keras-jax", SLOW),
        "worker/frameworks/jax/adapter.py",
        ("            ticket.block_until_ready()\n", "            return\n"),
    ),
    single(
        "keras-jax-weight-decay-dropped",
        "Keras on JAX trains without weight decay",
        local("keras-jax"),
        _JAX,
        ("[gradient + decay * weight for gradient, weight in", "[gradient for gradient, weight in"),
    ),
    single(
        "keras-jax-optimizer-never-steps",
        "Keras on JAX discards the new weights",
        local("keras-jax"),
        _JAX,
        (
            "        return self._optimizer.stateless_apply(variables, gradients, parameters)\n",
            "        return parameters, self._optimizer.stateless_apply(variables, gradients, parameters)[1]\n",
        ),
    ),
    single(
        "keras-tensorflow-one-metric-step",
        "Keras on TensorFlow computes only the loss in its second step",
        local("keras-tensorflow"),
        _TENSORFLOW,
        (
            _TAKE_STEP,
            f"    def _take_step(self, batch):\n"
            f"        if self._updates == 1:\n"
            f"            self._updates += 1\n"
            f"            return self._criterion(self._model(batch[0], training=True), batch[1])\n"
            f"        return super()._take_step(batch)\n\n{_TAKE_STEP}",
        ),
    ),
    single(
        "keras-tensorflow-metric-steps-after-warm-up",
        "Keras on TensorFlow computes only the loss in every second step after the fourth",
        local("keras-tensorflow"),
        _TENSORFLOW,
        (
            _TAKE_STEP,
            f"    def _take_step(self, batch):\n"
            f"        if self._updates > 3 and self._updates % 2 == 0:\n"
            f"            self._updates += 1\n"
            f"            return self._criterion(self._model(batch[0], training=True), batch[1])\n"
            f"        return super()._take_step(batch)\n\n{_TAKE_STEP}",
        ),
    ),
    single(
        "keras-tensorflow-half-batch",
        "Keras on TensorFlow trains on the first half of a batch",
        local("keras-tensorflow"),
        _TENSORFLOW,
        (
            _TAKE_STEP,
            f"    def _take_step(self, batch):\n"
            f"        return super()._take_step([part[: len(part) // 2] for part in batch])\n\n{_TAKE_STEP}",
        ),
    ),
    single(
        "keras-torch-no-update",
        "Keras on PyTorch never updates its weights",
        local("keras-torch"),
        _TORCH,
        (
            "    def predict(self, batch",
            "    def update(self, loss):\n        loss.backward()\n\n    def predict(self, batch",
        ),
    ),
    single(
        "keras-torch-second-head-left-out",
        "Keras on PyTorch trains the main head only",
        layers("keras-torch"),
        _TORCH,
        (
            "        return [head.float() if head.dtype",
            "        heads = heads[:1]\n        return [head.float() if head.dtype",
        ),
    ),
    single(
        "keras-momentum-dropped",
        "Keras trains without momentum",
        local("keras-tensorflow"),
        _ADAPTER,
        ("momentum=np.float64(self.config.momentum)", "momentum=np.float64(0.0)"),
    ),
    single(
        "keras-learning-rate-off",
        "Keras' learning rate is 0.1 % too large",
        parity("keras-tensorflow"),
        _TENSORFLOW,
        ("self._optimizer.learning_rate = rate", "self._optimizer.learning_rate = rate * 1.001"),
    ),
    single(
        "keras-second-head-counts-fully",
        "Keras gives the auxiliary head the weight of the main head",
        layers("keras-tensorflow"),
        _ADAPTER,
        ("total = total + weight * keras.ops.mean(losses)", "total = total + keras.ops.mean(losses)"),
    ),
    single(
        "keras-bf16-under-fp32",
        "Keras computes in bf16 where fp32 is timed",
        local("keras-jax"),
        _NETWORK,
        ('"fp32": "float32"', '"fp32": "mixed_bfloat16"'),
    ),
    single(
        "keras-uneven-padding",
        "Keras pads unevenly where the stride is 2",
        layers("keras-torch"),
        _NETWORK,
        ('mode = "same" if is_padded and is_same and not', 'mode = "same" if is_padded and not'),
    ),
    single(
        "keras-maximum-for-average",
        "Keras takes the maximum where the network averages",
        layers("keras-jax"),
        _NETWORK,
        ('layers.MaxPooling2D if kind == "max_pool" else layers.AveragePooling2D', "layers.MaxPooling2D"),
    ),
    single(
        "keras-batch-norm-eps",
        "Keras' batch norm has its default eps everywhere",
        parity("keras-torch"),
        _NETWORK,
        ('1 - BATCH_NORM_MOMENTUM, options["eps"], name=name', "1 - BATCH_NORM_MOMENTUM, name=name"),
    ),
    single(
        "keras-batch-norm-momentum",
        "Keras' running statistics of batch norm have Keras' default momentum",
        parity("keras-jax"),
        _NETWORK,
        ('1 - BATCH_NORM_MOMENTUM, options["eps"], name=name', '0.99, options["eps"], name=name'),
    ),
    single(
        "keras-dropout-rate",
        "Keras' dropout drops a fifth less than it should",
        parity("keras-tensorflow"),
        _NETWORK,
        ('SwitchableDropout(options["rate"], name=name)', 'SwitchableDropout(0.8 * options["rate"], name=name)'),
    ),
)
