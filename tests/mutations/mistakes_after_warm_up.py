"""Mistakes that begin after the warm-up, so that the first steps are right and the timed ones are not."""

from __future__ import annotations

from mutation import Mutation, single
from runs import PLAIN, local, real_images, two

_TORCH = "worker/frameworks/torch/adapter.py"
_BF16 = ("--precision", "bf16")

_BACKWARD = "        self._scaler.scale(loss).backward()\n"
_COUNT = "        self._calls = getattr(self, '_calls', 0) + 1\n"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "torch-bf16-after-warm-up",
        "PyTorch computes in bf16 after the fourth step, where fp32 is timed",
        local("torch"),
        _TORCH,
        (
            "        if self._autocast is None:\n",
            f"{_COUNT}        if self._calls > 4:\n"
            "            return torch.autocast(self.device.type, dtype=torch.bfloat16)\n"
            "        if self._autocast is None:\n",
        ),
    ),
    single(
        "torch-last-layer-frozen-after-warm-up",
        "PyTorch's last layer gets no gradient after the fourth step",
        local("torch"),
        _TORCH,
        (
            _BACKWARD,
            f"{_BACKWARD}{_COUNT}"
            "        if self._calls > 4:\n"
            "            list(self.network.module.parameters())[-2].grad.zero_()\n",
        ),
    ),
    single(
        "torch-exchange-stops-after-warm-up",
        "PyTorch's ranks exchange nothing after the fourth step",
        two("torch", "allreduce"),
        "worker/frameworks/torch/adapter.py",
        (
            "        images, labels = batch\n        with self.forward_context():",
            f"        images, labels = batch\n{_COUNT}"
            "        self._forward.require_backward_grad_sync = self._calls <= 4\n"
            "        with self.forward_context():",
        ),
    ),
    single(
        "torch-servers-stop-after-warm-up",
        "PyTorch's servers apply no gradient after the fourth update, in bf16",
        two("torch", "ps", *_BF16),
        "worker/frameworks/torch/parameter_server.py",
        (
            "        gradient.add_(weights, alpha=self._config.weight_decay)\n",
            "        if self._updates > 4:\n"
            "            gradient.zero_()\n"
            "        gradient.add_(weights, alpha=self._config.weight_decay)\n",
        ),
    ),
    single(
        "jax-updates-stop-after-warm-up",
        "JAX's learning rate is zero after the fifth step, in bf16",
        local("jax", PLAIN, *_BF16),
        "worker/frameworks/jax/adapter.py",
        (
            "        rate = self._rates(self._steps)\n",
            "        rate = self._rates(self._steps) * (self._steps < 5)\n",
        ),
    ),
    single(
        "jax-sharded-rate-halved-after-warm-up",
        "JAX's learning rate is halved after the fifth step, in bf16",
        two("jax", "sharded", *_BF16),
        "worker/frameworks/jax/adapter.py",
        (
            "        rate = self._rates(self._steps)\n",
            "        rate = self._rates(self._steps) * (1.0 if self._steps < 5 else 0.5)\n",
        ),
    ),
    single(
        "tensorflow-half-batch-after-warm-up",
        "TensorFlow trains on half of every batch after the fourth step",
        local("tensorflow"),
        "worker/frameworks/tensorflow/adapter.py",
        (
            "        return self._step(*batch, self._rate_on_device, self._dropping)\n",
            "        batch = [part[: len(part) // 2] for part in batch] if self._updates > 4 else batch\n"
            "        return self._step(*batch, self._rate_on_device, self._dropping)\n",
        ),
    ),
    single(
        "keras-rate-halved-after-warm-up",
        "Keras' learning rate is halved after the fourth step, in bf16",
        two("keras-tensorflow", "allreduce", *_BF16),
        "worker/frameworks/tensorflow/adapter.py",
        (
            "        rate = self._rates(self._updates)\n",
            "        rate = self._rates(self._updates) * (1.0 if self._updates < 4 else 0.5)\n",
        ),
    ),
    single(
        "mxnet-updates-stop-in-an-epoch",
        "MXNet updates its weights in the first five steps of an epoch only",
        real_images("mxnet", "local", 1, "--epochs", "1"),
        "worker/frameworks/mxnet/adapter.py",
        (
            "        self._trainer.step(1)\n",
            f"{_COUNT}        if self._calls < 6:\n            self._trainer.step(1)\n",
        ),
    ),
)
