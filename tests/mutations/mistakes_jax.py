"""Mistakes in the JAX adapter, on one device."""

from __future__ import annotations

from mutation import Mutation, single
from runs import SLOW, layers, local, parity, real_images

_ADAPTER = "worker/frameworks/jax/adapter.py"
_ENGINES = "worker/frameworks/jax/adapter.py"
_LAYERS = "worker/frameworks/jax/network.py"
_NETWORK = "worker/frameworks/jax/network.py"

_NEW_WEIGHTS = "        return jax.tree.map(lambda w, v: w - rate * v, parameters, momentum), momentum\n"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "jax-wait-does-not-wait",
        "JAX's wait returns before the step is done",
        local("jax", SLOW),
        _ADAPTER,
        ("            ticket.block_until_ready()\n", "            return\n"),
    ),
    single(
        "jax-half-batch",
        "JAX trains on the first half of a batch",
        local("jax"),
        _ADAPTER,
        ("self._state, *batch, self._rate", "self._state, *(part[: len(part) // 2] for part in batch), self._rate"),
    ),
    single(
        "jax-pixels-not-centred",
        "JAX does not subtract the mean of real images",
        real_images("jax"),
        _ADAPTER,
        ("images = pixels * factors + offsets", "images = pixels * factors"),
    ),
    single(
        "jax-stale-weights",
        "JAX continues with the weights from before the step, every second time",
        local("jax"),
        _ENGINES,
        (
            "        self._steps += 1\n        return self._loss\n",
            "        if self._steps % 2:\n            self._parameters = self._stale\n"
            "        self._stale = jax.tree.map(jnp.copy, self._parameters)\n"
            "        self._steps += 1\n        return self._loss\n",
        ),
    ),
    single(
        "jax-momentum-reset",
        "JAX forgets its momentum after every step",
        local("jax"),
        _ENGINES,
        ("keep * v + (g + decay * w)", "0 * v + (g + decay * w)"),
    ),
    single(
        "jax-weight-decay-twice",
        "JAX applies weight decay twice",
        local("jax"),
        _ENGINES,
        ("keep * v + (g + decay * w)", "keep * v + (g + 2 * decay * w)"),
    ),
    single(
        "jax-old-velocity",
        "JAX updates with the velocity of the step before",
        local("jax"),
        _ENGINES,
        (
            "momentum = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)\n"
            + _NEW_WEIGHTS,
            "velocity = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)\n"
            + _NEW_WEIGHTS.replace("), momentum", "), velocity"),
        ),
    ),
    single(
        "jax-last-layer-frozen",
        "JAX does not train the last bias",
        local("jax"),
        _ENGINES,
        (
            _NEW_WEIGHTS,
            "        after = jax.tree.map(lambda w, v: w - rate * v, parameters, momentum)\n"
            '        return {**after, "logits.bias": parameters["logits.bias"]}, momentum\n',
        ),
    ),
    single(
        "jax-learning-rate-off",
        "JAX's learning rate is 0.1 % too small",
        parity("jax"),
        _ENGINES,
        ("jax.device_put(np.asarray(rate, self._wide))", "jax.device_put(np.asarray(rate * 0.999, self._wide))"),
    ),
    single(
        "jax-second-head-counts-fully",
        "JAX gives the auxiliary head the weight of the main head",
        layers("jax"),
        _ENGINES,
        ("sum(weight * loss for weight", "sum(loss for weight"),
    ),
    single(
        "jax-bf16-under-fp32",
        "JAX computes in bf16 where fp32 is timed",
        local("jax"),
        _NETWORK,
        ('jax.numpy.bfloat16 if precision == "bf16" else', 'jax.numpy.bfloat16 if precision in ("bf16", "fp32") else'),
    ),
    single(
        "jax-no-gradient-of-the-mean",
        "JAX's batch norm passes no gradient through the mean",
        layers("jax"),
        _LAYERS,
        ("        mean = wide.mean(axes)\n", "        mean = lax.stop_gradient(wide.mean(axes))\n"),
    ),
    single(
        "jax-batch-norm-eps",
        "JAX's batch norm has an eps that is 0.1 % too large",
        parity("jax"),
        _LAYERS,
        ('lax.rsqrt(variance + layer.options["eps"])', 'lax.rsqrt(variance + layer.options["eps"] * 1.001)'),
    ),
    single(
        "jax-batch-norm-momentum",
        "JAX's running statistics of batch norm have twice the momentum",
        parity("jax"),
        _LAYERS,
        ("old + BATCH_NORM_MOMENTUM *", "old + 2 * BATCH_NORM_MOMENTUM *"),
    ),
    single(
        "jax-relu6",
        "JAX's ReLU ends at 6",
        parity("jax"),
        _LAYERS,
        ("jax.nn.relu(x)", "jax.nn.relu6(x)"),
    ),
    single(
        "jax-average-of-eight",
        "JAX divides the average of nine values by eight",
        layers("jax"),
        _LAYERS,
        ('total / np.prod(options["kernel"]).item()', 'total / (np.prod(options["kernel"]).item() - 1)'),
    ),
    single(
        "jax-dropout-rate",
        "JAX's dropout drops a fifth less than it should",
        parity("jax"),
        _LAYERS,
        ('1.0 - layer.options["rate"] * dropping', '1.0 - 0.8 * layer.options["rate"] * dropping'),
    ),
)
