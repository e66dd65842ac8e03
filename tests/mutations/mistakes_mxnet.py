"""Mistakes in the MXNet adapter, on one device."""

from __future__ import annotations

from mutation import Mutation, single
from runs import SLOW, layers, local, parity

_ADAPTER = "worker/frameworks/mxnet/adapter.py"
_NETWORK = "worker/frameworks/mxnet/network.py"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "mxnet-wait-does-not-wait",
        "MXNet's wait returns before the step is done",
        local("mxnet", SLOW),
        _ADAPTER,
        ("        ticket.wait_to_read()\n", "        return\n"),
    ),
    single(
        "mxnet-mean-taken-twice",
        "MXNet divides the mean gradient by the batch again",
        local("mxnet"),
        _ADAPTER,
        ("self._trainer.step(1)", "self._trainer.step(images.shape[0])"),
    ),
    single(
        "mxnet-optimizer-never-steps",
        "MXNet never updates its weights",
        local("mxnet"),
        _ADAPTER,
        ("        self._trainer.step(1)\n", ""),
    ),
    single(
        "mxnet-half-batch",
        "MXNet trains on the first half of a batch",
        local("mxnet"),
        _ADAPTER,
        (
            "        images, labels = batch\n        with autograd.record():",
            "        images, labels = (part[: len(part) // 2] for part in batch)\n        with autograd.record():",
        ),
    ),
    single(
        "mxnet-momentum-dropped",
        "MXNet trains without momentum",
        local("mxnet"),
        _ADAPTER,
        ('{"momentum": config.momentum,', '{"momentum": 0.0,'),
    ),
    single(
        "mxnet-weight-decay-dropped",
        "MXNet trains without weight decay",
        local("mxnet"),
        _ADAPTER,
        ('"wd": config.weight_decay,', '"wd": 0.0,'),
    ),
    single(
        "mxnet-no-decay-of-vectors",
        "MXNet decays no biases and no parameters of batch norm",
        parity("mxnet"),
        _ADAPTER,
        (
            "            parameter.wd_mult = parameter.lr_mult = 1.0\n",
            "            parameter.wd_mult, parameter.lr_mult = float(len(parameter.shape) > 1), 1.0\n",
        ),
    ),
    single(
        "mxnet-smallest-tensor-frozen",
        "MXNet's trainer does not get the smallest tensor",
        local("mxnet"),
        _ADAPTER,
        (
            "key=lambda parameter: prod(parameter.shape))\n",
            "key=lambda parameter: prod(parameter.shape))[1:]\n",
        ),
    ),
    single(
        "mxnet-batch-norm-eps",
        "MXNet's batch norm has its default eps everywhere",
        layers("mxnet"),
        _NETWORK,
        ('epsilon=options["eps"]', "epsilon=1e-5"),
    ),
    single(
        "mxnet-batch-norm-scale",
        "MXNet's batch norm does not train its scale",
        layers("mxnet"),
        _NETWORK,
        ("nn.BatchNorm(momentum=momentum,", "nn.BatchNorm(scale=False, momentum=momentum,"),
    ),
    single(
        "mxnet-batch-norm-momentum",
        "MXNet's running statistics of batch norm exchange the shares of old and new",
        parity("mxnet"),
        _NETWORK,
        ("        momentum = 1 - BATCH_NORM_MOMENTUM\n", "        momentum = BATCH_NORM_MOMENTUM\n"),
    ),
    single(
        "mxnet-padding-counted",
        "MXNet counts padding in every average",
        layers("mxnet"),
        _NETWORK,
        ('count_include_pad=options["count_padding"]', "count_include_pad=True"),
    ),
    single(
        "mxnet-addition-left-out",
        "MXNet takes one input of an addition only",
        layers("mxnet"),
        _NETWORK,
        ("values[layer.name] = inputs[0] + inputs[1]", "values[layer.name] = inputs[0] + 0 * inputs[1]"),
    ),
    single(
        "mxnet-dropout-rate",
        "MXNet's dropout drops a fifth less than it should",
        parity("mxnet"),
        _NETWORK,
        ('SwitchableDropout(options["rate"], prefix=name)', 'SwitchableDropout(0.8 * options["rate"], prefix=name)'),
    ),
)
