"""SGD whose learning rate follows a schedule. It runs in a worker, or it is pickled and sent to the parameter servers,
which import this module when they unpickle it. They are importing MXNet then, so Gluon cannot be imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx

# The smallest factor of a velocity, for a rate that falls to 0. Without momentum MXNet would not update the velocity
# and use the old one again.
_LEAST_FACTOR = 1e-30


class ScheduledSGD(mx.optimizer.SGD):
    """``rate`` gives the learning rate by the number of updates so far; ``sharers`` updates count as one.

    MXNet's velocity holds gradients times the rates of their own steps. Every other framework here multiplies the
    accumulated gradients by the current rate. So the velocity is scaled with the rate, through the momentum.
    """

    def __init__(self, rate: Callable[[int], float], sharers: int, momentum: float, **options: Any) -> None:
        super().__init__(learning_rate=rate(0), momentum=momentum, **options)
        self._rate, self._sharers, self._keep = rate, sharers, momentum

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Count the updates of each array, because asynchronous workers send theirs in any order."""
        done = self._index_update_count.get(index[0] if isinstance(index, (list, tuple)) else index, 0)
        before, self.lr = (self._rate(max(0, update) // self._sharers) for update in (done - 1, done))
        self.momentum = self._keep * (max(self.lr / before, _LEAST_FACTOR) if before else 1.0)
        super().update_multi_precision(index, weight, grad, state)
