"""Mistakes that concern a part of the work only: one rank, one tensor, one exchange, some bits, some steps."""

from __future__ import annotations

from mistakes_distributed import AFTER_SHARDED_SGD, REDUCED, with_hook
from mutation import Mutation, MutationRun, single
from runs import EVERY_KIND, PLAIN, local, real_images, two

_TORCH = "worker/frameworks/torch/adapter.py"
_TORCH_SERVER = "worker/frameworks/torch/parameter_server.py"
_TENSORFLOW = "worker/frameworks/tensorflow/adapter.py"
_JAX = "worker/frameworks/jax/adapter.py"
_KERAS = "worker/frameworks/keras/adapter.py"
_KERAS_TENSORFLOW = "worker/frameworks/keras/tensorflow_backend.py"
_MXNET = "worker/frameworks/mxnet/adapter.py"

_BF16 = ("--precision", "bf16")
_BACKWARD = "        self._scaler.scale(loss).backward()\n"
_COUNT = "        self._calls = getattr(self, '_calls', 0) + 1\n"
_STALE = (
    "        own = [p.grad.clone() for p in self.network.module.parameters()]\n"
    "        for p, g in zip(self.network.module.parameters(), getattr(self, '_last', own)):\n"
    "            p.grad.copy_(g)\n"
    "        self._last = own\n"
)
# In a window of 8 steps after 4 of warm-up, and not in the steps after it.
_IN_THE_WINDOW = "        if 4 < self._calls <= 12:\n"

_EXCHANGE = (
    Mutation(
        "torch-exchange-in-bf16",
        "PyTorch's ranks exchange gradients in bf16, where fp32 is timed",
        two("torch", "allreduce"),
        with_hook("values = values.bfloat16()", REDUCED.format("own.copy_(done.value()[0] / 2)")),
    ),
    Mutation(
        "torch-exchange-in-fp16",
        "PyTorch's ranks exchange gradients in fp16, where fp32 is timed",
        two("torch", "allreduce"),
        with_hook("values = values.half()", REDUCED.format("own.copy_(done.value()[0] / 2)")),
    ),
    single(
        "jax-exchange-in-bf16",
        "JAX's ranks exchange gradients in bf16, where fp32 is timed",
        two("jax", "allreduce"),
        _JAX,
        (
            "unravel(lax.pmean(vector, _RANKS))",
            "unravel(lax.pmean(vector.astype(jnp.bfloat16), _RANKS).astype(jnp.float32))",
        ),
    ),
    Mutation(
        "torch-a-bias-not-reduced-after-warm-up",
        "PyTorch's rank 1 keeps its own gradient of the last bias after the fourth step",
        two("torch", "allreduce"),
        with_hook(
            "reduce.calls = getattr(reduce, 'calls', 0) + 1",
            "kept = 10 if reduce.calls > 4 and dist.get_rank() else 0",
            REDUCED.format("torch.cat([own[:kept], done.value()[0][kept:] / 2])"),
        ),
    ),
    single(
        "torch-rate-scaled-by-world",
        "PyTorch's learning rate is multiplied by the number of workers",
        two("torch", "allreduce"),
        _TORCH,
        ('group["lr"] = self._rates(self._updates)', 'group["lr"] = self._rates(self._updates) * self.job.workers'),
    ),
    single(
        "torch-sharded-stale-gradient",
        "PyTorch updates its shards with the gradients of the step before",
        two("torch", "sharded"),
        _TORCH,
        (_BACKWARD, f"{_BACKWARD}{_STALE}"),
    ),
    single(
        "torch-biases-not-decayed-on-rank-1",
        "PyTorch's rank 1 does not decay its biases",
        two("torch", "allreduce", "--weight-decay", "0.01"),
        _TORCH,
        (
            "        self._scaler.step(self._optimizer)\n",
            "        for p in self.network.module.parameters():\n"
            "            if p.ndim == 1 and self.job.rank:\n"
            "                p.grad.sub_(p.detach(), alpha=self._config.weight_decay)\n"
            "        self._scaler.step(self._optimizer)\n",
        ),
    ),
    single(
        "jax-batch-norm-over-all-ranks",
        "JAX's batch norm takes its statistics over the images of all ranks",
        MutationRun("jax", EVERY_KIND, "allreduce", 2, ("--image-size", "32")),
        "worker/frameworks/jax/network.py",
        (
            "        mean = wide.mean(axes)\n"
            "        variance = jnp.maximum(jnp.square(wide).mean(axes) - jnp.square(mean), 0)\n",
            '        mean = lax.pmean(wide.mean(axes), "ranks")\n'
            '        square = lax.pmean(jnp.square(wide).mean(axes), "ranks")\n'
            "        variance = jnp.maximum(square - jnp.square(mean), 0)\n",
        ),
    ),
    single(
        "jax-sharded-momentum-of-rank-0",
        "JAX's rank 1 forgets the momentum of its shard",
        two("jax", "sharded"),
        _JAX,
        (
            AFTER_SHARDED_SGD,
            f"    def _sgd(self, shard, momentum, gradient, rate):\n"
            f"        return super()._sgd(shard, momentum * (lax.axis_index(_RANKS) == 0), gradient, rate)\n\n"
            f"{AFTER_SHARDED_SGD}",
        ),
    ),
    single(
        "keras-jax-no-exchange",
        "Keras on JAX: ranks exchange nothing",
        two("keras-jax", "allreduce"),
        _JAX,
        ("unravel(lax.pmean(vector, _RANKS))", "unravel(vector)"),
    ),
    single(
        "keras-tensorflow-half-of-the-tensors-exchanged",
        "Keras on TensorFlow: replicas ignore the gradients of others for every second tensor",
        two("keras-tensorflow", "allreduce"),
        _KERAS_TENSORFLOW,
        (
            "        self._optimizer.apply_gradients(zip(gradients, variables))\n",
            "        context = tf.distribute.get_replica_context()\n"
            "        own = context.replica_id_in_sync_group\n"
            "        first = tf.cast(own == 0, gradients[0].dtype)\n"
            "        gradients = [g if n % 2 else g * 2 * first for n, g in enumerate(gradients)]\n"
            "        self._optimizer.apply_gradients(zip(gradients, variables))\n",
        ),
    ),
    single(
        "tensorflow-labels-shifted-on-rank-1",
        "TensorFlow's rank 1 trains on labels that are shifted by one image",
        two("tensorflow", "allreduce"),
        _TENSORFLOW,
        (
            "            return tf.constant(images), tf.constant(labels)\n",
            "            import numpy\n"
            "            return tf.constant(images), tf.constant(numpy.roll(labels, self.job.rank))\n",
        ),
    ),
)

_SERVERS = (
    single(
        "torch-a-worker-pushes-nothing-after-warm-up",
        "PyTorch's rank 1 pushes zeros to its servers after the fourth step",
        two("torch", "ps", *_BF16),
        _TORCH_SERVER,
        (
            "        loss.backward()\n        self._synchronize()\n",
            f"        loss.backward()\n{_COUNT}"
            "        if self._calls > 4 and self.job.rank:\n"
            "            self._gradients.zero_()\n"
            "        self._synchronize()\n",
        ),
    ),
    single(
        "torch-asynchronous-drops-pushes-after-warm-up",
        "PyTorch's asynchronous servers apply no gradient after the eighth, in bf16",
        two("torch", "ps-async", *_BF16),
        _TORCH_SERVER,
        (
            "            self._apply(mean, a, b)\n",
            "            if self._updates <= 8:\n                self._apply(mean, a, b)\n",
        ),
    ),
    single(
        "mxnet-rate-scaled-by-world",
        "MXNet's learning rate is multiplied by the number of workers",
        two("mxnet", "ps"),
        _MXNET,
        (
            "            optimizer = mx.optimizer.SGD(learning_rate=config.learning_rate, **constants)\n",
            "            optimizer = mx.optimizer.SGD(learning_rate=config.learning_rate * job.workers, **constants)\n",
        ),
    ),
    single(
        "mxnet-a-worker-trains-on-half-after-warm-up",
        "MXNet's rank 1 repeats half of its batch after the fourth step",
        two("mxnet", "ps"),
        _MXNET,
        (
            "        images, labels = batch\n        with autograd.record():",
            f"        images, labels = batch\n{_COUNT}"
            "        if self._calls > 4 and self.job.rank:\n"
            "            half = len(labels) // 2\n"
            "            images, labels = (mx.nd.concat(p[:half], p[:half], dim=0) for p in (images, labels))\n"
            "        with autograd.record():",
        ),
    ),
)

_STEPS = (
    single(
        "torch-stale-gradient",
        "PyTorch updates with the gradients of the step before",
        local("torch"),
        _TORCH,
        (_BACKWARD, f"{_BACKWARD}{_STALE}"),
    ),
    single(
        "torch-gradients-accumulate",
        "PyTorch adds the gradients of every step to those of the steps before",
        local("torch"),
        _TORCH,
        ("        self._optimizer.zero_grad(set_to_none=True)\n", ""),
    ),
    single(
        "torch-a-bias-frozen-after-warm-up",
        "PyTorch does not train the first bias after the fourth step",
        local("torch"),
        _TORCH,
        (
            _BACKWARD,
            f"{_BACKWARD}{_COUNT}"
            "        if self._calls > 4:\n"
            "            list(self.network.module.parameters())[1].grad.zero_()\n",
        ),
    ),
    single(
        "jax-a-bias-frozen-after-warm-up",
        "JAX does not train the first bias after the fourth step, in bf16",
        local("jax", PLAIN, *_BF16),
        _JAX,
        (
            "        self._steps += 1\n        return self._loss\n",
            "        first = sorted(n for n in self._parameters if n.endswith('bias'))[0]\n"
            "        if self._steps > 4:\n"
            "            self._parameters = {**self._parameters, first: jnp.copy(self._frozen)}\n"
            "        self._frozen = jnp.copy(self._parameters[first])\n"
            "        self._steps += 1\n        return self._loss\n",
        ),
    ),
    single(
        "torch-updates-skipped-in-the-window",
        "PyTorch skips the updates of the window, and of no other step, in bf16",
        local("torch", PLAIN, *_BF16),
        _TORCH,
        (
            _BACKWARD,
            f"{_COUNT}{_IN_THE_WINDOW}            return\n{_BACKWARD}",
        ),
    ),
    single(
        "jax-steps-skipped-in-the-window",
        "JAX computes nothing in every second step of the window, and all in other steps, in bf16",
        local("jax", PLAIN, *_BF16),
        "worker/frameworks/jax/adapter.py",
        (
            "        rate = self._rates(self._steps)\n",
            f"{_COUNT}"
            "        if 4 < self._calls <= 12 and self._calls % 2:\n"
            "            return self._loss\n"
            "        rate = self._rates(self._steps)\n",
        ),
    ),
    single(
        "tensorflow-updates-skipped-in-the-window",
        "TensorFlow takes one step of the window in four, and all others, without weight decay",
        local("tensorflow", PLAIN, "--weight-decay", "0"),
        _TENSORFLOW,
        (
            "        return self._step(*batch, self._rate_on_device, self._dropping)\n",
            "        if not (4 < self._updates <= 12 and self._updates % 4):\n"
            "            self._newest = self._step(*batch, self._rate_on_device, self._dropping)\n"
            "        return self._newest\n",
        ),
    ),
    single(
        "keras-torch-rate-decays",
        "Keras on PyTorch: the learning rate falls by 1 % in every step",
        local("keras-torch"),
        _TORCH,
        ('group["lr"] = self._rates(self._updates)', 'group["lr"] = self._rates(self._updates) * 0.99**self._updates'),
    ),
    single(
        "keras-nesterov",
        "Keras looks ahead (Nesterov) where momentum is plain",
        local("keras-tensorflow"),
        _KERAS,
        (
            "            gradient = velocity\n",
            "            kept = ops.multiply(velocity, ops.cast(self.momentum, variable.dtype))\n"
            "            gradient = ops.add(gradient, kept)\n",
        ),
    ),
    single(
        "mxnet-epoch-trains-half-of-the-labels",
        "MXNet trains on one label only after the fourth step of an epoch",
        real_images("mxnet", "local", 1, "--epochs", "1"),
        _MXNET,
        (
            "        images, labels = batch\n        with autograd.record():",
            f"        images, labels = batch\n{_COUNT}"
            "        labels = labels * 0 if self._calls > 4 else labels\n"
            "        with autograd.record():",
        ),
    ),
)

MUTATIONS: tuple[Mutation, ...] = (*_EXCHANGE, *_SERVERS, *_STEPS)
