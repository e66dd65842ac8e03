"""SGD whose learning rate follows a schedule, wherever it runs: in a worker, or pickled and sent to the parameter
servers, which import this module when they unpack it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx

# What is left of a velocity when the rate falls to nothing. Without any momentum MXNet would leave the velocity as it
# is, and use it again.
_LEAST = 1e-30


class ScheduledSGD(mx.optimizer.SGD):
    """``rate`` gives the learning rate by the number of updates so far; ``sharers`` updates count as one.

    MXNet's velocity holds gradients times the rates of their own steps; every other framework here multiplies what has
    gathered by the rate of today. So the velocity is scaled with the rate, by the factor that multiplies it anyway.
    """

    def __init__(self, rate: Callable[[int], float], sharers: int, momentum: float, **options: Any) -> None:
        super().__init__(learning_rate=rate(0), momentum=momentum, **options)
        self._rate, self._sharers, self._keep = rate, sharers, momentum

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Each array counts its own updates: asynchronous workers send theirs as they please."""
        done = self._index_update_count.get(index[0] if isinstance(index, (list, tuple)) else index, 0)
        before, self.lr = (self._rate(max(0, update) // self._sharers) for update in (done - 1, done))
        self.momentum = self._keep * (max(self.lr / before, _LEAST) if before else 1.0)
        super().update_multi_precision(index, weight, grad, state)
