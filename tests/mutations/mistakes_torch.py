"""Mistakes in the PyTorch adapter, on one device."""

from __future__ import annotations

from mutation import Mutation, single
from runs import PLAIN, layers, local, parity, real_images

_ADAPTER = "worker/frameworks/torch/adapter.py"
_ENGINES = "worker/frameworks/torch/adapter.py"
_NETWORK = "worker/frameworks/torch/network.py"

_UPDATE = "    def update(self, loss: torch.Tensor) -> None:\n        self._scaler"
_COUNT_CALLS = (
    "    def update(self, loss: torch.Tensor) -> None:\n"
    "        self._calls = getattr(self, '_calls', 0) + 1\n"
    "        if {skips}:\n"
    "            return\n"
    "        self._scaler"
)
_BATCH = "        images, labels = batch\n        with self.forward_context():"

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "torch-optimizer-never-steps",
        "PyTorch's optimizer never steps",
        local("torch"),
        _ENGINES,
        ("        self._scaler.step(self._optimizer)\n", ""),
    ),
    single(
        "torch-every-second-step-skipped",
        "PyTorch skips the update of every second step",
        local("torch"),
        _ENGINES,
        (_UPDATE, _COUNT_CALLS.format(skips="self._calls % 2 == 0")),
    ),
    single(
        "torch-steps-skipped-after-warm-up",
        "PyTorch skips the updates after the fifth step",
        local("torch"),
        _ENGINES,
        (_UPDATE, _COUNT_CALLS.format(skips="self._calls > 5")),
    ),
    single(
        "torch-every-third-update-skipped-after-warm-up",
        "PyTorch skips every third update after the fourth step",
        local("torch"),
        _ENGINES,
        (_UPDATE, _COUNT_CALLS.format(skips="self._calls > 4 and self._calls % 3 == 0")),
    ),
    single(
        "torch-updates-skipped-in-bf16",
        "PyTorch skips every third update after the fourth step, in bf16",
        local("torch", PLAIN, "--precision", "bf16"),
        _ENGINES,
        (_UPDATE, _COUNT_CALLS.format(skips="self._calls > 4 and self._calls % 3 == 0")),
    ),
    single(
        "torch-updates-skipped-in-an-epoch",
        "PyTorch skips every third update after the fourth step, where it trains epochs",
        real_images("torch", "local", 1, "--epochs", "1"),
        _ENGINES,
        (_UPDATE, _COUNT_CALLS.format(skips="self._calls > 4 and self._calls % 3 == 0")),
    ),
    single(
        "torch-learning-rate-off",
        "PyTorch's learning rate is 0.1 % too large",
        parity("torch"),
        _ENGINES,
        ('group["lr"] = self._rates(self._updates)', 'group["lr"] = self._rates(self._updates) * 1.001'),
    ),
    single(
        "torch-momentum-dropped",
        "PyTorch trains without momentum",
        local("torch"),
        _ENGINES,
        ("momentum=self.config.momentum,", "momentum=0.0,"),
    ),
    single(
        "torch-weight-decay-dropped",
        "PyTorch trains without weight decay",
        local("torch"),
        _ENGINES,
        ("weight_decay=self.config.weight_decay,", "weight_decay=0.0,"),
    ),
    single(
        "torch-weight-decay-twice",
        "PyTorch applies weight decay twice",
        local("torch"),
        _ENGINES,
        ("weight_decay=self.config.weight_decay,", "weight_decay=2 * self.config.weight_decay,"),
    ),
    single(
        "torch-gradient-clipped",
        "PyTorch clips the gradients",
        local("torch"),
        _ENGINES,
        (
            "        self._scaler.step(self._optimizer)\n",
            "        torch.nn.utils.clip_grad_norm_(self.network.module.parameters(), 0.1)\n"
            "        self._scaler.step(self._optimizer)\n",
        ),
    ),
    single(
        "torch-momentum-reset",
        "PyTorch forgets its momentum after every step",
        local("torch"),
        _ENGINES,
        (
            "        self._optimizer.zero_grad(set_to_none=True)\n",
            "        self._optimizer.zero_grad(set_to_none=True)\n        self._optimizer.state.clear()\n",
        ),
    ),
    single(
        "torch-first-layer-frozen",
        "PyTorch does not train the first layer",
        local("torch"),
        _ENGINES,
        (
            "[p for p in self.network.module.parameters() if p.requires_grad],\n            lr",
            "[p for p in self.network.module.parameters() if p.requires_grad][2:],\n            lr",
        ),
    ),
    single(
        "torch-vectors-not-trained",
        "PyTorch trains neither biases nor the parameters of batch norm",
        layers("torch"),
        _ENGINES,
        (
            "[p for p in self.network.module.parameters() if p.requires_grad],\n            lr",
            "[p for p in self.network.module.parameters() if p.ndim > 1],\n            lr",
        ),
    ),
    single(
        "torch-bf16-under-fp32",
        "PyTorch computes in bf16 where fp32 is timed",
        local("torch"),
        _ENGINES,
        ("self._autocast = _AUTOCAST.get(precision)", 'self._autocast = _AUTOCAST["bf16"]'),
    ),
    single(
        "torch-half-batch",
        "PyTorch trains on the first half of a batch",
        local("torch"),
        _ADAPTER,
        (_BATCH, _BATCH.replace("= batch", "= (part[: len(part) // 2] for part in batch)")),
    ),
    single(
        "torch-half-batch-after-warm-up",
        "PyTorch trains on half of every batch after the fourth step",
        local("torch"),
        _ADAPTER,
        (
            _BATCH,
            "        self._calls = getattr(self, '_calls', 0) + 1\n"
            "        images, labels = (part[: len(part) // (2 if self._calls > 4 else 1)] for part in batch)\n"
            "        with self.forward_context():",
        ),
    ),
    single(
        "torch-labels-shifted",
        "PyTorch trains on labels that are off by one",
        local("torch"),
        _ADAPTER,
        (
            "memory_format=layout), torch.from_numpy(labels).to(self.device)",
            "memory_format=layout), torch.from_numpy((labels + 1) % self.config.classes).to(self.device)",
        ),
    ),
    single(
        "torch-loss-of-the-last-step",
        "PyTorch reports the loss of the step before",
        local("torch"),
        _ADAPTER,
        (
            "        self._loss = loss.detach()\n",
            "        self._loss = getattr(self, '_newest', loss.detach())\n        self._newest = loss.detach()\n",
        ),
    ),
    single(
        "torch-second-head-counts-fully",
        "PyTorch gives the auxiliary head the weight of the main head",
        layers("torch"),
        _ADAPTER,
        ("sum(w * functional.cross_entropy(head, labels)", "sum(functional.cross_entropy(head, labels)"),
    ),
    single(
        "torch-other-initial-weights",
        "PyTorch starts from the weights of another seed",
        local("torch"),
        _NETWORK,
        ("{}, initial_weights(graph, seed)", "{}, initial_weights(graph, seed + 1)"),
    ),
    single(
        "torch-maximum-for-average",
        "PyTorch takes the maximum where the network averages",
        layers("torch"),
        _NETWORK,
        ('nn.AvgPool2d(*window, count_include_pad=options["count_padding"])', "nn.MaxPool2d(*window)"),
    ),
    single(
        "torch-padding-counted",
        "PyTorch counts padding in every average",
        layers("torch"),
        _NETWORK,
        ('count_include_pad=options["count_padding"]', "count_include_pad=True"),
    ),
    single(
        "torch-relu-missing-after-add",
        "PyTorch leaves out the ReLU after an addition",
        layers("torch"),
        _NETWORK,
        (
            '        elif layer.kind == "dropout" and not dropout:\n',
            '        elif layer.kind == "dropout" and not dropout or (\n'
            '            layer.kind == "relu" and graph.layer(layer.inputs[0]).kind == "add"\n        ):\n',
        ),
    ),
    single(
        "torch-batch-norm-eps",
        "PyTorch's batch norm has an eps that is 0.1 % too large",
        parity("torch"),
        _NETWORK,
        ('eps=options["eps"]', 'eps=options["eps"] * 1.001'),
    ),
    single(
        "torch-batch-norm-momentum",
        "PyTorch's running statistics of batch norm have twice the momentum",
        parity("torch"),
        _NETWORK,
        ("momentum=BATCH_NORM_MOMENTUM)", "momentum=2 * BATCH_NORM_MOMENTUM)"),
    ),
    single(
        "torch-dropout-stays-off",
        "PyTorch's dropout is not switched on again after the first steps",
        parity("torch"),
        "worker/frameworks/torch/network.py",
        (
            "        self.factor.fill_(1 / (1 - self.rate) if active else 0.0)\n",
            "        active = False\n        self.factor.fill_(0.0)\n",
        ),
    ),
    single(
        "torch-dropout-rate",
        "PyTorch's dropout drops a fifth less than it should",
        parity("torch"),
        _NETWORK,
        ('SwitchableDropout(options["rate"])', 'SwitchableDropout(0.8 * options["rate"])'),
    ),
)
