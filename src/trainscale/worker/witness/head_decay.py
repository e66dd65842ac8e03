"""Counts the updates of a network by its weight decay.

The gradient of softmax cross-entropy sums to zero over the classes. So the sum of the head's weights over the classes
changes by weight decay alone, whatever the samples, the dropout and the order of the updates are: after N updates a
share of it remains that follows from the learning rate, the momentum, the weight decay and N.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import models
from ..config import Config
from ..models.weights import initial_weight
from ..type_aliases import NamedArrays


def compute_remaining_share(config: Config, seed: int, weights: NamedArrays) -> float | None:
    """Return the share of the head's initial class sum that is left; None where there is no such head."""
    if models.resolve(config.model) is None:
        return None
    graph = models.build(config.model, config.image_size, config.classes)
    name = f"{graph.heads[0].layer}.weight"
    if name not in weights or weights[name].ndim != 2:
        return None
    first = initial_weight(graph, name, seed).sum(axis=0, dtype="f8")
    # Gradients sum to zero except for rounding, whose sum is along the features. After a ReLU those are all positive,
    # so most of it is the same for all of them, and disappears with the mean.
    direction = first - first.mean()
    return float(direction @ weights[name].sum(axis=0, dtype="f8") / (direction @ first))


def compute_decay(config: Config, rate: Callable[[int], float], updates: int) -> float:
    """Return the share that is left after so many updates. ``rate`` gives the learning rate by the number of updates
    made before.
    """
    share, velocity = 1.0, 0.0
    for update in range(updates):
        velocity = config.momentum * velocity + config.weight_decay * share
        share -= rate(update) * velocity
    return share
