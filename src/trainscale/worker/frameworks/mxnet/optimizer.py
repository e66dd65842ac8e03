"""SGD in float64, for parity checks. MXNet's own keeps its learning rate, momentum and weight decay as float32 whatever
the weights are: 0.001 becomes 0.00100000005, which no float64 comparison would let pass.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx


class DoubleSGD(mx.optimizer.Optimizer):
    """The same update as mxnet.optimizer.SGD."""

    def __init__(self, momentum: float, **options: Any) -> None:
        super().__init__(**options)
        self.momentum = momentum

    def create_state(self, index: int, weight: mx.nd.NDArray) -> mx.nd.NDArray:
        return mx.nd.zeros(weight.shape, weight.context, dtype=weight.dtype)

    def update(self, index: int, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: mx.nd.NDArray) -> None:
        self._update_count(index)
        whole = grad * self.rescale_grad + weight * self._get_wd(index)
        state[:] = state * self.momentum - whole * self._get_lr(index)
        weight[:] = weight + state
