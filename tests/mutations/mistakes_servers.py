"""Mistakes of parameter servers, synchronous and asynchronous."""

from __future__ import annotations

from mutation import Mutation, single
from runs import two

_TORCH = "worker/frameworks/torch/parameter_server.py"
_TENSORFLOW = "worker/frameworks/tensorflow/parameter_server.py"
_MXNET = "worker/frameworks/mxnet/adapter.py"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "torch-servers-sum",
        "PyTorch's servers add the gradients instead of averaging them",
        two("torch", "ps"),
        _TORCH,
        ("mean.div_(len(workers))", "mean"),
    ),
    single(
        "torch-servers-ignore-rank-1",
        "PyTorch's servers ignore rank 1's gradients",
        two("torch", "ps"),
        _TORCH,
        ("for inbox in inboxes[1:]:", "for inbox in inboxes[2:]:"),
    ),
    single(
        "torch-servers-update-half",
        "PyTorch's servers update half of their parameters",
        two("torch", "ps"),
        _TORCH,
        (
            "        weights, momentum = self._weights[low:high], self._momentum[low:high]\n",
            "        high = (low + high) // 2\n        gradient = gradient[: high - low]\n"
            "        weights, momentum = self._weights[low:high], self._momentum[low:high]\n",
        ),
    ),
    single(
        "torch-servers-range-off-by-one",
        "PyTorch's second server holds a range that begins one element early",
        two("torch", "ps:2"),
        _TORCH,
        ("vector[low:high].clone()", "vector[max(0, low - 1) :][: high - low].clone()"),
    ),
    single(
        "torch-servers-forget-momentum",
        "PyTorch's servers forget their momentum",
        two("torch", "ps"),
        _TORCH,
        ("momentum.mul_(self._config.momentum).add_(gradient)", "momentum.copy_(gradient)"),
    ),
    single(
        "torch-asynchronous-applies-nothing",
        "PyTorch's asynchronous servers apply no gradient",
        two("torch", "ps-async"),
        _TORCH,
        ("            self._apply(mean, a, b)\n", ""),
    ),
    single(
        "torch-asynchronous-applies-twice",
        "PyTorch's asynchronous servers apply each gradient twice",
        two("torch", "ps-async"),
        _TORCH,
        (
            "            self._apply(mean, a, b)\n",
            "            self._apply(mean, a, b)\n            self._apply(mean, a, b)\n",
        ),
    ),
    single(
        "torch-asynchronous-ignores-rank-1",
        "PyTorch's asynchronous servers do not apply rank 1's gradients",
        two("torch", "ps-async"),
        _TORCH,
        (
            "            self._apply(mean, a, b)\n",
            "            if workers[0] == 0:\n                self._apply(mean, a, b)\n",
        ),
    ),
    single(
        "tensorflow-servers-sum",
        "TensorFlow's servers add the gradients instead of averaging them",
        two("tensorflow", "ps"),
        _TENSORFLOW,
        (
            "optimizer.apply_gradients(list(zip(gradients, self.variables.values())),",
            "optimizer.apply_gradients(list(zip([workers * g for g in gradients], self.variables.values())),",
        ),
    ),
    single(
        "tensorflow-servers-update-half",
        "TensorFlow's servers update every second tensor",
        two("tensorflow", "ps"),
        _TENSORFLOW,
        (
            "optimizer.apply_gradients(list(zip(gradients, self.variables.values())),",
            "optimizer.apply_gradients(list(zip(gradients, self.variables.values()))[::2],",
        ),
    ),
    single(
        "tensorflow-servers-wait-for-one",
        "TensorFlow's servers update when the first worker's gradient is there",
        two("tensorflow", "ps"),
        _TENSORFLOW,
        ("replicas_to_aggregate=workers,", "replicas_to_aggregate=1,"),
    ),
    single(
        "tensorflow-asynchronous-applies-nothing",
        "TensorFlow's asynchronous servers apply no gradient",
        two("tensorflow", "ps-async"),
        _TENSORFLOW,
        (
            "        optimizer = _Sgd(config, rate)\n",
            "        optimizer = _Sgd(config, 0.0)\n",
        ),
    ),
    single(
        "mxnet-servers-sum",
        "MXNet's servers have the rescale_grad of one worker",
        two("mxnet", "ps"),
        _MXNET,
        ('"rescale_grad": 1 / summed', '"rescale_grad": 1.0'),
    ),
    single(
        "mxnet-asynchronous-averages",
        "MXNet's asynchronous servers divide each gradient by the number of workers",
        two("mxnet", "ps-async"),
        _MXNET,
        ('summed = job.workers if config.strategy == "ps" else 1', "summed = job.workers"),
    ),
)
