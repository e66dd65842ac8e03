"""Mistakes in what several ranks do together: collectives, shards, independence. Parameter servers have a
file of their own."""

from __future__ import annotations

from mutation import Edit, Mutation, single
from runs import two

_TORCH_ADAPTER = "worker/frameworks/torch/adapter.py"
_TORCH = "worker/frameworks/torch/adapter.py"
_TENSORFLOW = "worker/frameworks/tensorflow/adapter.py"
_JAX_ADAPTER = "worker/frameworks/jax/adapter.py"
_JAX_ENGINES = "worker/frameworks/jax/adapter.py"
_JAX = "worker/frameworks/jax/adapter.py"
_KERAS_TENSORFLOW = "worker/frameworks/keras/tensorflow_backend.py"
_KERAS_TORCH = "worker/frameworks/keras/torch_backend.py"

_DATA_PARALLEL = (
    "        return data_parallel(\n            module,",
    'gradient_as_bucket_view=True,\n            **{"forward_sync_buffers" if newer else "broadcast_buffers": False},\n'
    "        )\n",
)
_SHARD = "        fully_shard(self.network.module, mesh=mesh)\n"
_MEAN = "        return unravel(lax.pmean(vector, _RANKS))\n"
# Where the adapter of shards has room for a method of its own.
AFTER_SHARDED_SGD = "    def drain(self) -> None:\n        np.asarray(self._first_value"


def with_hook(*lines: str) -> tuple[Edit, Edit]:
    """Let DistributedDataParallel reduce each bucket with a function of these lines."""
    hook = "".join(f"            {line}\n" for line in lines)
    return (
        Edit(_TORCH, _DATA_PARALLEL[0], "        wrapped = data_parallel(\n            module,"),
        Edit(
            _TORCH,
            _DATA_PARALLEL[1],
            f"{_DATA_PARALLEL[1]}\n"
            f"        def reduce(state, bucket):\n"
            f"            values, own = bucket.buffer(), bucket.buffer().clone()\n"
            f"{hook}\n"
            f"        wrapped.register_comm_hook(None, reduce)\n"
            f"        return wrapped\n",
        ),
    )


REDUCED = "return dist.all_reduce(values, async_op=True).get_future().then(lambda done: {})"


def _exchange_among_independent(adapter: str) -> Edit:
    """Give the strategy ``independent`` the adapter of ``allreduce``."""
    line = f'            "allreduce": "{adapter}",\n'
    return Edit("worker/frameworks/catalog.py", line, f'{line}            "independent": "{adapter}",\n')


_COLLECTIVES = (
    Mutation(
        "torch-allreduce-sums",
        "PyTorch's ranks add their gradients instead of averaging them",
        two("torch", "allreduce"),
        with_hook(REDUCED.format("done.value()[0]")),
    ),
    Mutation(
        "torch-allreduce-drops-half-a-bucket",
        "PyTorch exchanges the first half of a bucket of gradients",
        two("torch", "allreduce"),
        with_hook(
            "half = len(own) // 2",
            REDUCED.format("torch.cat([done.value()[0][:half] / 2, own[half:]])"),
        ),
    ),
    Mutation(
        "torch-allreduce-ignores-rank-1",
        "PyTorch's rank 1 contributes zeros to the mean",
        two("torch", "allreduce"),
        with_hook("values.mul_(dist.get_rank() == 0)", REDUCED.format("done.value()[0] / 2")),
    ),
    Mutation(
        "torch-rank-1-keeps-its-gradients",
        "PyTorch's rank 1 updates with its own gradients instead of the mean",
        two("torch", "allreduce"),
        with_hook(REDUCED.format("own if dist.get_rank() else done.value()[0] / 2")),
    ),
    single(
        "torch-exchange-every-second-step",
        "PyTorch exchanges gradients in every second step only",
        two("torch", "allreduce"),
        _TORCH_ADAPTER,
        (
            "            heads = self.compute_heads(images)\n            loss = self._criterion",
            "            self._calls = getattr(self, '_calls', 0) + 1\n"
            "            self._forward.require_backward_grad_sync = self._calls % 2 == 1\n"
            "            heads = self.compute_heads(images)\n            loss = self._criterion",
        ),
    ),
    single(
        "tensorflow-allreduce-sums",
        "TensorFlow's replicas add their gradients instead of averaging them",
        two("tensorflow", "allreduce"),
        _TENSORFLOW,
        ("all_reduce(tf.distribute.ReduceOp.MEAN", "all_reduce(tf.distribute.ReduceOp.SUM"),
    ),
    single(
        "tensorflow-replicas-with-a-local-mean",
        "TensorFlow's replicas update with their own gradients",
        two("tensorflow", "allreduce"),
        _TENSORFLOW,
        (
            "        super()._update(self._average(gradients), rate)\n",
            "        super()._update(gradients, rate)\n",
        ),
    ),
    single(
        "jax-allreduce-sums",
        "JAX's ranks add their gradients instead of averaging them",
        two("jax", "allreduce"),
        _JAX,
        (_MEAN, _MEAN.replace("pmean", "psum")),
    ),
    single(
        "jax-allreduce-sums-in-bf16",
        "JAX's ranks add their gradients instead of averaging them, in bf16",
        two("jax", "allreduce", "--precision", "bf16"),
        _JAX,
        (_MEAN, _MEAN.replace("pmean", "psum")),
    ),
    single(
        "jax-no-exchange",
        "JAX's ranks exchange nothing",
        two("jax", "allreduce"),
        _JAX,
        (_MEAN, "        return unravel(vector)\n"),
    ),
    single(
        "jax-exchanges-half",
        "JAX's ranks exchange the first half of the gradients",
        two("jax", "allreduce"),
        _JAX,
        (
            _MEAN,
            "        mean, half = lax.pmean(vector, _RANKS), len(vector) // 2\n"
            "        return unravel(jnp.concatenate([mean[:half], vector[half:]]))\n",
        ),
    ),
    single(
        "keras-jax-allreduce-sums",
        "Keras on JAX: ranks add their gradients instead of averaging them",
        two("keras-jax", "allreduce"),
        _JAX,
        (_MEAN, _MEAN.replace("pmean", "psum")),
    ),
    single(
        "keras-tensorflow-allreduce-sums",
        "Keras on TensorFlow: replicas add their gradients instead of averaging them",
        two("keras-tensorflow", "allreduce"),
        _KERAS_TENSORFLOW,
        ('share = 1 / self.job.workers if self.config.strategy == "allreduce" else 1.0', "share = 1.0"),
    ),
    single(
        "keras-torch-no-exchange",
        "Keras on PyTorch calls the network without DistributedDataParallel",
        two("keras-torch", "allreduce"),
        _KERAS_TORCH,
        ("        count = super().build()\n", "        count = super().build()\n        self._forward = self._model\n"),
    ),
)

_SHARDED = (
    single(
        "torch-sharded-one-shard-updated",
        "PyTorch updates rank 0's shard only",
        two("torch", "sharded"),
        _TORCH,
        (
            "    def weights(self) -> NamedArrays:\n        # Predicting leaves",
            "    def update(self, loss):\n"
            "        if self.job.rank == 0:\n"
            "            return super().update(loss)\n"
            "        loss.backward()\n"
            "        self._optimizer.zero_grad(set_to_none=True)\n\n"
            "    def weights(self) -> NamedArrays:\n        # Predicting leaves",
        ),
    ),
    single(
        "torch-sharded-sums",
        "PyTorch's shards receive the sum of the gradients",
        two("torch", "sharded"),
        _TORCH,
        (
            "    def weights(self) -> NamedArrays:\n        # Predicting leaves",
            "    def update(self, loss):\n"
            "        super().update(loss * self.job.workers)\n\n"
            "    def weights(self) -> NamedArrays:\n        # Predicting leaves",
        ),
    ),
    single(
        "torch-sharded-without-reduce",
        "PyTorch's shards never receive the reduced gradients",
        two("torch", "sharded"),
        _TORCH,
        (_SHARD, f"{_SHARD}        self.network.module.set_requires_gradient_sync(False)\n"),
    ),
    single(
        "jax-sharded-one-shard-updated",
        "JAX updates rank 0's shard only",
        two("jax", "sharded"),
        _JAX,
        (
            AFTER_SHARDED_SGD,
            f"    def _sgd(self, shard, momentum, gradient, rate):\n"
            f"        after, momentum = super()._sgd(shard, momentum, gradient, rate)\n"
            f"        return jnp.where(lax.axis_index(_RANKS) == 0, after, shard), momentum\n\n"
            f"{AFTER_SHARDED_SGD}",
        ),
    ),
    single(
        "jax-sharded-sums",
        "JAX's shards receive the sum of the gradients",
        two("jax", "sharded"),
        _JAX,
        (
            "lax.psum_scatter(vector, _RANKS, tiled=True) / self.job.workers",
            "lax.psum_scatter(vector, _RANKS, tiled=True)",
        ),
    ),
)

# A rank that is done goes on without counting until all are. Ranks that exchange would wait for each other for ever.
_NO_FURTHER_STEPS = Edit("worker/training/loop.py", "while adapter.job.is_asynchronous and not", "while False and not")

_INDEPENDENT = (
    Mutation(
        "torch-independent-exchanges",
        "PyTorch's independent workers average their gradients",
        two("torch", "independent"),
        (_exchange_among_independent(".torch.adapter:TorchAllreduceAdapter"), _NO_FURTHER_STEPS),
    ),
    Mutation(
        "jax-independent-exchanges",
        "JAX's independent workers average their gradients",
        two("jax", "independent"),
        (_exchange_among_independent(".jax.adapter:JaxAllreduceAdapter"), _NO_FURTHER_STEPS),
    ),
    Mutation(
        "tensorflow-independent-exchanges",
        "TensorFlow's independent workers average their gradients",
        two("tensorflow", "independent"),
        (_exchange_among_independent(".tensorflow.adapter:TensorFlowAllreduceAdapter"), _NO_FURTHER_STEPS),
    ),
    single(
        "torch-independent-starts-differ",
        "PyTorch's rank 1 starts from other weights",
        two("torch", "independent"),
        _TORCH_ADAPTER,
        (
            "networks.build(self.config, self.job.seed, self.job.dropout)",
            "networks.build(job.config, job.seed + job.rank, job.dropout)",
        ),
    ),
)

MUTATIONS: tuple[Mutation, ...] = (*_COLLECTIVES, *_SHARDED, *_INDEPENDENT)
