"""SGD whose learning rate follows a schedule, in a worker or, pickled, on the parameter servers.

They import this module to unpickle it, during their import of MXNet, so it cannot import Gluon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx

# The smallest factor of a velocity, for a rate that falls to 0. Without momentum MXNet would use
# the old velocity again.
_LEAST_FACTOR = 1e-30


class ScheduledSGD(mx.optimizer.SGD):
    """``rate`` gives the learning rate by the number of updates, of which ``sharers`` count as one.

    MXNet's velocity holds gradients times the rates of their own steps, where every other framework
    here multiplies by the current rate. So the velocity is scaled with the rate.
    """

    def __init__(self, rate: Callable[[int], float], sharers: int, momentum: float, **options: Any) -> None:
        super().__init__(learning_rate=rate(0), momentum=momentum, **options)
        self._rate, self._sharers, self._keep = rate, sharers, momentum

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        # Counted for each array, because asynchronous workers send theirs in any order.
        done = self._index_update_count.get(index[0] if isinstance(index, (list, tuple)) else index, 0)
        before, self.lr = (self._rate(max(0, update) // self._sharers) for update in (done - 1, done))
        self.momentum = self._keep * (max(self.lr / before, _LEAST_FACTOR) if before else 1.0)
        super().update_multi_precision(index, weight, grad, state)
