"""The closing steps of a trial: three steps from the initial weights, after the window.

They prove that a step still computes what the first step computed: the same loss, and an update by the same gradient.
Let w be the initial weights, and g the gradient with weight decay that the first step subtracted from them. The
optimizer is not reset, so its velocity v is unknown. With learning rates r₁ and r₂ and the momentum m, two such steps
change the weights by a = -r₁·(m·v + g) and b = -r₂·(m·(m·v + g) + g). So g = (m·r₂/r₁·a - b) / r₂, whatever v is.

The gradient is given for each tensor. That of the head's weights is compared most closely, because rounding hardly
changes it. In a deep network in bf16 it may change the gradient of all weights by as much as that gradient is long.

Servers may update weights of their own, u, where the worker's copy is set to w. Then b has the weight decay of u and
not of w, and the difference is subtracted.

Behind asynchronous servers two ranks take turns: each takes all its steps while the others wait. Where the servers have
weights of their own, the first step only fetches what the others have made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..frameworks.base import Adapter
from ..training.rendezvous import Rendezvous
from .sketch import sketch_weights

if TYPE_CHECKING:
    import numpy

STEPS = 3  # gives the gradient twice, so that an update which is left out every third time is noticed


class ClosingStepTaker:
    """Takes the closing steps of one rank. ``initial`` are the sketches of its initial weights. Without a rendezvous
    the other ranks wait meanwhile.
    """

    def __init__(self, adapter: Adapter, rendezvous: Rendezvous | None, initial: Mapping[str, numpy.ndarray]) -> None:
        self._adapter, self._rendezvous, self._names = adapter, rendezvous, list(initial)
        self._initial = self._stack_sketches(initial)
        self.change = 0.0  # the length of the longest update of all weights, divided by its learning rate

    def take(
        self, weights: Mapping[str, Any], batch: Any, rates: Sequence[float]
    ) -> tuple[list[float], list[dict[str, numpy.ndarray]]]:
        """Return the losses, and for each two steps the sketch of the gradient of every tensor.

        The initial weights and the batch are those of the first step; ``rates`` are the learning rates to come.
        """
        is_restored = self._adapter.proof.updates_restored_weights
        start = self._initial if is_restored else self._read()
        losses: list[float] = []
        starts: list[numpy.ndarray] = []
        changes: list[numpy.ndarray] = []
        for number in range(STEPS):
            losses.append(self._step_from(weights, batch, number))
            after = self._read()
            starts.append(start)
            changes.append(after - start)
            start = self._initial if is_restored else after
        self.change = max(_compute_length(update) / rate for update, rate in zip(changes, rates))
        is_behind = self._rendezvous is None and not is_restored
        pairs = range(2 if is_behind else 1, STEPS)
        gradients = [self._compute_gradient(changes[n - 1 : n + 1], rates[n - 1 : n + 1], starts[n]) for n in pairs]
        return losses, [dict(zip(self._names, rows)) for rows in gradients]

    def _step_from(self, weights: Mapping[str, Any], batch: Any, number: int) -> float:
        """No rank restores weights before all have read those of the last step, nor takes a step before all have."""
        self._meet(f"restore {number}")
        self._adapter.proof.restore(weights)
        self._meet(f"restored {number}")
        self._adapter.wait(self._adapter.step(batch))
        return self._adapter.loss()

    def _meet(self, name: str) -> None:
        if self._rendezvous is not None:
            self._rendezvous.exchange(name)

    def _compute_gradient(
        self, changes: Sequence[numpy.ndarray], rates: Sequence[float], start: numpy.ndarray
    ) -> numpy.ndarray:
        config = self._adapter.config
        gradient = (config.momentum * rates[1] / rates[0] * changes[0] - changes[1]) / rates[1]
        result: numpy.ndarray = gradient - config.weight_decay * (start - self._initial)
        return result

    def _read(self) -> numpy.ndarray:
        return self._stack_sketches(sketch_weights(self._adapter.proof.weights()))

    def _stack_sketches(self, sketches: Mapping[str, numpy.ndarray]) -> numpy.ndarray:
        """Return one row for each tensor."""
        import numpy as np

        rows: numpy.ndarray = np.stack([sketches[name] for name in self._names])
        return rows


def _compute_length(changes: numpy.ndarray) -> float:
    """Return the length of the change of all weights, given the sketches of the changes of all tensors."""
    import numpy as np

    return float(np.linalg.norm(changes.sum(axis=0)))
